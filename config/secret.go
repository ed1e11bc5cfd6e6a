package config

import (
	"os"
	"slices"
	"strings"
)

// Role says what the bearer of a token may do.
type Role string

// The roles; the zero value is no role.
const (
	// RoleRuntime registers hooks and dispatches events.
	RoleRuntime Role = "runtime"
	// RoleOperator looks at lanes and settles dead letters.
	RoleOperator Role = "operator"
)

// Token is one bearer token and the role it gives.
type Token struct {
	Role  Role
	Value Secret
}

// ReadPassword returns the password, from its file if that is set; "" means
// that of the URL. The error is a *SettingError.
func (r Redis) ReadPassword() (Secret, error) {
	return readSecret("redis.password_file", r.Password, r.PasswordFile)
}

// ReadDSN returns the database's connection string, from its file if that is
// set. The error is a *SettingError.
func (e Enrich) ReadDSN() (Secret, error) { return readSecret("enrich.dsn_file", e.DSN, e.DSNFile) }

// ReadTokens returns the tokens, from their file if that is set; none means
// that anybody may call. The error is a *SettingError and names no token.
func (a API) ReadTokens() ([]Token, error) {
	path, pairs := "api.tokens", a.Tokens
	if a.TokensFile != "" {
		path, pairs = "api.tokens_file", nil
		text, err := os.ReadFile(a.TokensFile)
		if err != nil {
			return nil, &SettingError{Path: path, Wrong: "cannot be read: " + cause(err).Error(), Right: "name a readable file"}
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				pairs = append(pairs, Secret(line))
			}
		}
		if len(pairs) == 0 {
			return nil, &SettingError{Path: path, Wrong: "holds no token", Right: "write one role:token a line"}
		}
	}
	return parseTokens(path, pairs)
}

func parseTokens(path string, pairs []Secret) ([]Token, error) {
	tokens := make([]Token, 0, len(pairs))
	for _, pair := range pairs {
		role, value, found := strings.Cut(pair.Reveal(), ":")
		token := Token{Role: Role(role), Value: Secret(value)}
		switch {
		case !found || token.Role != RoleRuntime && token.Role != RoleOperator:
			return nil, &SettingError{
				Path: path, Wrong: "holds an entry without a known role",
				Right: "write runtime:TOKEN or operator:TOKEN",
			}
		case !bearer(value):
			return nil, &SettingError{
				Path: path, Wrong: "holds a token that a header cannot carry",
				Right: "use letters, digits and the characters - . _ ~ + / =",
			}
		case slices.ContainsFunc(tokens, func(t Token) bool { return t.Value == token.Value }):
			return nil, &SettingError{
				Path: path, Wrong: "holds the same token twice", Right: "give each role a token of its own",
			}
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// bearer reports whether value fits the b64token of RFC 6750, section 2.1.
func bearer(value string) bool {
	for _, c := range []byte(value) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/=", rune(c)) {
			return false
		}
	}
	return value != ""
}

// secret checks the rule "the secret or its file, not both" and that the file
// can be used.
func (p *problems) secret(path string, value Secret, file string) {
	if value != "" && file != "" {
		p.add(path, "and "+path+"_file are both set", "keep one of them")
		return
	}
	if _, err := readSecret(path+"_file", value, file); err != nil {
		*p = append(*p, SettingErrors(err)...)
	}
}

func readSecret(path string, value Secret, file string) (Secret, error) {
	if file == "" {
		return value, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", &SettingError{Path: path, Wrong: "cannot be read: " + cause(err).Error(), Right: "name a readable file"}
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", &SettingError{Path: path, Wrong: "names an empty file", Right: "write the secret into it"}
	}
	return Secret(secret), nil
}
