package egress_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

func reasonOf(err error) egress.Reason {
	var denied *egress.DeniedError
	if errors.As(err, &denied) {
		return denied.Reason
	}
	return ""
}

func TestPublicPolicyHosts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]egress.Reason{
		"example.com": "", "EXAMPLE.com": "", "a_b.example.com": "", "xn--mnchen-3ya.example": "", "8.8.8.8": "",
		"::ffff:8.8.8.8": "", "2606:4700::1": "", "1.example": "", "0x7f.example": "", "internal": "",

		"127.0.0.1": egress.ReasonLoopback, "::1": egress.ReasonLoopback, "::ffff:7f00:1": egress.ReasonLoopback,
		"::127.0.0.1": egress.ReasonEmbeddedIPv4, "64:ff9b::a9fe:a9fe": egress.ReasonEmbeddedIPv4,
		"2002:7f00:1::": egress.ReasonEmbeddedIPv4, "fd00:ec2::254": egress.ReasonMetadata,
		"0.0.0.0": egress.ReasonUnspecified, "100.100.100.200": egress.ReasonMetadata,
		"169.254.169.254": egress.ReasonMetadata, "fe80::1%eth0": egress.ReasonZone, "::1%1": egress.ReasonZone,

		"": egress.ReasonSpelling, ".": egress.ReasonSpelling, "127.1": egress.ReasonSpelling,
		"2130706433": egress.ReasonSpelling, "0x7f000001": egress.ReasonSpelling, "0X7F000001": egress.ReasonSpelling,
		"0177.0.0.1": egress.ReasonSpelling, "127.0.0.01": egress.ReasonSpelling, "127.0.0.0x1": egress.ReasonSpelling,
		"0x": egress.ReasonSpelling, "8.8.8.8.": egress.ReasonSpelling, "08.8.8.8": egress.ReasonSpelling,
		"1.2.3.4.5": egress.ReasonSpelling, "256.1.1.1": egress.ReasonSpelling, "example.1": egress.ReasonSpelling,
		"localhost.": egress.ReasonSpelling, "example.com.": egress.ReasonSpelling, "a..b": egress.ReasonSpelling,
		"ex ample.com": egress.ReasonSpelling, "１２７.0.0.1": egress.ReasonSpelling, "127。0。0。1": egress.ReasonSpelling,
		"%31.example": egress.ReasonSpelling, "user@example.com": egress.ReasonSpelling, "[::1]": egress.ReasonSpelling,
		"example.com:80": egress.ReasonSpelling, "a\x00b": egress.ReasonSpelling,
		strings.Repeat("a.", 127) + "aa": egress.ReasonSpelling,

		"localhost": egress.ReasonLocalName, "LocalHost": egress.ReasonLocalName, "a.localhost": egress.ReasonLocalName,
		"localhost.localdomain": egress.ReasonLocalName, "ip6-localhost": egress.ReasonLocalName,
		"metadata.google.internal": egress.ReasonMetadata, "Metadata.Google.Internal": egress.ReasonMetadata,
		"metadata": egress.ReasonMetadata, "instance-data": egress.ReasonMetadata,
	} {
		err := egress.Public().CheckHost(raw)
		if got := reasonOf(err); got != want || (err != nil) != (want != "") {
			t.Errorf("CheckHost(%q) = %v, want %q", raw, err, want)
		}
		if err != nil && egress.FailureClass(err) != tasks.ClassEgressDenied {
			t.Errorf("class of %v = %s", err, egress.FailureClass(err))
		}
		if err != nil && len(raw) > 3 && strings.Contains(err.Error(), raw) && raw != "metadata" {
			t.Errorf("refusal names the host: %v", err)
		}
	}
}

func TestTrustedPolicyAllowsEverything(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"127.0.0.1", "localhost", "localhost.", "127.1", "metadata.google.internal", "::1"} {
		if err := egress.Trusted().CheckHost(raw); err != nil {
			t.Errorf("CheckHost(%q) = %v", raw, err)
		}
	}
}

func TestPolicyAllowances(t *testing.T) {
	t.Parallel()
	policy := egress.Policy{
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("127.0.0.0/8")},
		AllowHosts: []string{"intranet.corp", "*.svc.corp", "172.16.0.9"},
	}
	for raw, want := range map[string]egress.Reason{
		"10.20.0.1": "", "::ffff:10.20.0.1": "", "10.21.0.1": egress.ReasonPrivate, "10.19.255.255": egress.ReasonPrivate,
		"127.0.0.1": "", "::1": egress.ReasonLoopback, "localhost": "", "127.1": egress.ReasonSpelling,
		"64:ff9b::10.20.0.1": egress.ReasonEmbeddedIPv4, "172.16.0.9": "", "172.16.0.8": egress.ReasonPrivate,
		"intranet.corp": "", "INTRANET.corp": "", "a.svc.corp": "", "a.b.SVC.corp": "",
		"localhost.": egress.ReasonSpelling,
	} {
		err := policy.CheckHost(raw)
		if got := reasonOf(err); got != want || (err != nil) != (want != "") {
			t.Errorf("CheckHost(%q) = %v, want %q", raw, err, want)
		}
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]egress.Policy{
		"zero prefix":   {AllowCIDRs: []netip.Prefix{{}}},
		"mapped prefix": {AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
		"empty host":    {AllowHosts: []string{""}},
		"every host":    {AllowHosts: []string{"*"}},
		"every dot":     {AllowHosts: []string{"*."}},
		"inner star":    {AllowHosts: []string{"a.*.b"}},
		"bare suffix":   {AllowHosts: []string{"*corp"}},
	} {
		if _, err := egress.New(egress.Config{Policy: policy}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever text a host has: a verdict of "allowed" on something that Go reads
// as an address means that the address is public, and no odd form of a loopback
// address is taken for a name.
func FuzzCheckHost(f *testing.F) {
	for _, seed := range []string{"127.1", "0x7f000001", "2130706433", "0177.0.0.1", "::ffff:7f00:1", "localhost.", "example.com", "64:ff9b::1", "fe80::1%1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if egress.Public().CheckHost(raw) != nil {
			return
		}
		if addr, err := netip.ParseAddr(raw); err == nil {
			if !egress.Classify(addr).Public() {
				t.Fatalf("allowed %q", raw)
			}
			return
		}
		last := raw[strings.LastIndexByte(raw, '.')+1:]
		if last == "" || strings.Trim(last, "0123456789") == "" || strings.ContainsAny(raw, ":%@/\\ []") {
			t.Fatalf("took %q for a name", raw)
		}
	})
}
