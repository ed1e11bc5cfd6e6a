package tasks

import (
	"encoding/json"
	"math"
)

// maxAttempts bounds the attempts that a hook may ask for.
const maxAttempts = 1000

// maxFactor bounds the growth of a hook's backoff.
const maxFactor = 100

func (p *hookParser) parseOptions(v json.RawMessage) (*HookOptions, error) {
	if !isObject(v) {
		return nil, p.refuse(InvalidOptions, "gantry", "gantry is no object", optionsFix)
	}
	o := &HookOptions{}
	var failed error
	_ = eachMember(v, func(quoted []byte, value json.RawMessage) {
		if failed != nil {
			return
		}
		switch key := decodeKey(quoted); key {
		case "retry":
			o.Retry, failed = p.parseRetry(value)
		case "signingKeyEnv":
			o.SigningKeyEnv = ""
			if isString(value) {
				o.SigningKeyEnv = decodeString(value)
			}
			if o.SigningKeyEnv == "" {
				failed = p.refuse(InvalidOptions, "gantry.signingKeyEnv", "signingKeyEnv is no variable name", variableFix)
			}
		default:
			failed = p.refuse(InvalidOptions, "gantry."+key, "key is unknown", optionsFix)
		}
	})
	return o, failed
}

func (p *hookParser) parseRetry(v json.RawMessage) (*RetryOptions, error) {
	if !isObject(v) {
		return nil, p.refuse(InvalidOptions, "gantry.retry", "retry is no object", retryFix)
	}
	r := &RetryOptions{}
	var failed error
	_ = eachMember(v, func(quoted []byte, value json.RawMessage) {
		if failed != nil {
			return
		}
		key := decodeKey(quoted)
		f, ok := number(value)
		if !ok || f == 0 {
			failed = p.refuse(InvalidOptions, "gantry.retry."+key, "value is no number above 0", retryFix)
			return
		}
		if !r.set(key, f) {
			failed = p.refuse(InvalidOptions, "gantry.retry."+key, "key is unknown or no whole number", retryFix)
		}
	})
	return r, failed
}

func (r *RetryOptions) set(key string, f float64) bool {
	switch key {
	case "attempts":
		return setCount(&r.Attempts, f)
	case "clientErrorAttempts":
		return setCount(&r.ClientErrorAttempts, f)
	case "maxAgeSeconds":
		r.MaxAgeSeconds = f
	case "initialDelaySeconds":
		r.InitialDelaySeconds = f
	case "factor":
		r.Factor = f
	case "maxDelaySeconds":
		r.MaxDelaySeconds = f
	default:
		return false
	}
	return true
}

func setCount(to *int, f float64) bool {
	if f != math.Trunc(f) || math.Abs(f) > maxAttempts {
		return false
	}
	*to = int(f)
	return true
}

const (
	optionsFix = "gantry has retry and signingKeyEnv only"
	retryFix   = "retry has attempts and clientErrorAttempts (whole, 1 to 1000), maxAgeSeconds, initialDelaySeconds, maxDelaySeconds (above 0) and factor (1 to 100) only"
)

func validateOptions(o *HookOptions, path string) error {
	path += ".gantry"
	if o.SigningKeyEnv != "" && !variableName(o.SigningKeyEnv) {
		return &InvalidError{
			Code: InvalidOptions, Path: path + ".signingKeyEnv", Message: "signingKeyEnv is no variable name", Fix: variableFix,
		}
	}
	r := o.Retry
	if r == nil {
		return nil
	}
	for _, f := range [...]struct {
		name     string
		value    float64
		min, max float64
	}{
		{"attempts", float64(r.Attempts), 1, maxAttempts},
		{"clientErrorAttempts", float64(r.ClientErrorAttempts), 1, maxAttempts},
		{"maxAgeSeconds", r.MaxAgeSeconds, 0, MaxTimeoutSeconds},
		{"initialDelaySeconds", r.InitialDelaySeconds, 0, MaxTimeoutSeconds},
		{"maxDelaySeconds", r.MaxDelaySeconds, 0, MaxTimeoutSeconds},
		{"factor", r.Factor, 1, maxFactor},
	} {
		// Not inside, rather than outside, so that NaN is refused as well.
		if f.value != 0 && !(f.value >= f.min && f.value <= f.max) {
			return &InvalidError{Code: InvalidOptions, Path: path + ".retry." + f.name, Message: "value is out of range", Fix: retryFix}
		}
	}
	return nil
}
