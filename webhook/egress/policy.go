package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Policy says which addresses a client may reach. The zero value is the public
// policy: globally reachable addresses only, plainly spelled.
type Policy struct {
	// AllowCIDRs are address ranges that the operator allows although they are
	// special, such as 10.20.0.0/16; nil means none. IPv4 ranges are written as
	// IPv4. An allowed range opens everything in it, metadata services included.
	AllowCIDRs []netip.Prefix
	// AllowHosts are names, or addresses as text, that the operator allows
	// whatever they resolve to; "*.corp.example" allows every name below
	// corp.example; nil means none. Allow only names whose records you control.
	AllowHosts []string

	trusted bool
}

// Public returns the policy for addresses that a caller chose: public ones only.
func Public() Policy { return Policy{} }

// Trusted returns the policy for addresses that the operator chose: everything
// is allowed, in any spelling.
func Trusted() Policy { return Policy{trusted: true} }

// CheckHost judges a host (without port and brackets) as it is spelled, before
// any name is resolved: names of metadata services, local names, addresses and
// odd spellings of them. A refusal is a *DeniedError.
func (p Policy) CheckHost(raw string) error {
	if p.trusted || p.allowsHost(raw) {
		return nil
	}
	h, reason := parseHost(raw)
	switch {
	case reason != "":
		return &DeniedError{Reason: reason}
	case h.addr.IsValid():
		return p.CheckAddr(h.addr)
	case h.local && len(p.localAddrs()) == 0:
		return &DeniedError{Reason: ReasonLocalName}
	}
	return nil
}

// CheckAddr judges an address. A refusal is a *DeniedError.
func (p Policy) CheckAddr(addr netip.Addr) error {
	if p.trusted {
		return nil
	}
	v := Classify(addr)
	if v.Public() {
		return nil
	}
	for _, prefix := range p.AllowCIDRs {
		if prefix.Contains(addr.Unmap()) {
			return nil
		}
	}
	return &DeniedError{Reason: v.Reason()}
}

// localAddrs are the loopback addresses that p allows: what a local name means,
// so that no resolver has a say in it (RFC 6761).
func (p Policy) localAddrs() []netip.Addr {
	var addrs []netip.Addr
	for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if p.CheckAddr(addr) == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func (p Policy) allowsHost(raw string) bool {
	for _, allowed := range p.AllowHosts {
		if suffix, wild := strings.CutPrefix(allowed, "*"); wild {
			if len(raw) > len(suffix) && strings.EqualFold(raw[len(raw)-len(suffix):], suffix) {
				return true
			}
		} else if strings.EqualFold(raw, allowed) {
			return true
		}
	}
	return false
}

// validate refuses entries that could never match, or would match too much.
func (p Policy) validate() error {
	for _, prefix := range p.AllowCIDRs {
		if !prefix.IsValid() {
			return errors.New("check allowed range: not a CIDR")
		}
		if prefix.Addr().Is4In6() {
			return fmt.Errorf("check allowed range %s: write an IPv4 range as IPv4", prefix)
		}
	}
	for _, allowed := range p.AllowHosts {
		suffix, wild := strings.CutPrefix(allowed, "*")
		if allowed == "" || strings.Contains(suffix, "*") || wild && (len(suffix) < 2 || suffix[0] != '.') {
			return fmt.Errorf("check allowed host %q: want a name or *.name", allowed)
		}
	}
	return nil
}
