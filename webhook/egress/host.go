package egress

import (
	"net/netip"
	"strings"
)

// metadataNames are the names under which platforms serve credentials to
// whoever asks from inside.
var metadataNames = map[string]bool{
	"metadata":                             true,
	"metadata.google.internal":             true,
	"metadata.goog":                        true,
	"metadata.azure.internal":              true,
	"metadata.tencentyun.com":              true,
	"instance-data":                        true,
	"instance-data.ec2.internal":           true,
	"kubernetes":                           true,
	"kubernetes.default":                   true,
	"kubernetes.default.svc":               true,
	"kubernetes.default.svc.cluster.local": true,
}

// localNames are the names of the machine itself besides "localhost" and its
// subdomains (RFC 6761).
var localNames = map[string]bool{
	"localhost.localdomain":  true,
	"localhost4":             true,
	"localhost6":             true,
	"ip6-localhost":          true,
	"ip6-loopback":           true,
	"localhost4.localdomain": true,
	"localhost6.localdomain": true,
}

// host is a host as a URL spells it, taken apart.
type host struct {
	// name is in lower case; "" for an address.
	name string
	// addr is valid when the host is an address.
	addr netip.Addr
	// local says that the name stands for this machine.
	local bool
}

// parseHost takes apart a host without port and without brackets. The reason is
// not empty when its spelling alone is refused: anything but a canonical
// address or a plain ASCII name, because other spellings exist only to mean
// something else to the next parser.
func parseHost(raw string) (host, Reason) {
	if raw == "" {
		return host{}, ReasonSpelling
	}
	if strings.Contains(raw, ":") {
		return parseHost6(raw)
	}
	if !plainName(raw) {
		return host{}, ReasonSpelling
	}
	if endsInNumber(raw) {
		addr, err := netip.ParseAddr(raw)
		if err != nil {
			return host{}, ReasonSpelling
		}
		return host{addr: addr}, ""
	}
	name := strings.ToLower(raw)
	if metadataNames[name] {
		return host{}, ReasonMetadata
	}
	return host{name: name, local: localName(name)}, ""
}

func parseHost6(raw string) (host, Reason) {
	addr, err := netip.ParseAddr(raw)
	switch {
	case err != nil:
		return host{}, ReasonSpelling
	case addr.Zone() != "":
		return host{}, ReasonZone
	}
	return host{addr: addr}, ""
}

func localName(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || localNames[name]
}

// plainName reports whether raw consists of non-empty labels of ASCII letters,
// digits, hyphens and underscores. A trailing dot is therefore refused.
func plainName(raw string) bool {
	label := 0
	for i := range len(raw) {
		switch c := raw[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			label++
		default:
			return false
		}
	}
	return label > 0 && len(raw) <= 253
}

// endsInNumber reports whether some parser would read raw as an IPv4 address:
// its last label is decimal, octal or hexadecimal (WHATWG URL, "ends in a number").
func endsInNumber(raw string) bool {
	last := raw[strings.LastIndexByte(raw, '.')+1:]
	if len(last) >= 2 && last[0] == '0' && last[1]|0x20 == 'x' {
		return onlyBytes(last[2:], "0123456789abcdefABCDEF")
	}
	return onlyBytes(last, "0123456789")
}

func onlyBytes(s, set string) bool { return strings.Trim(s, set) == "" }
