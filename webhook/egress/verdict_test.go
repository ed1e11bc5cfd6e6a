package egress_test

import (
	"net/netip"
	"testing"

	"github.com/gantry-hooks/gantry/webhook/egress"
)

// Each row of the registries just inside and just outside; "" means public.
var boundaries = []struct {
	addr   string
	reason egress.Reason
	source string
}{
	{"0.0.0.0", egress.ReasonUnspecified, "RFC 1122"},
	{"0.0.0.1", egress.ReasonUnspecified, "RFC 791"},
	{"0.255.255.255", egress.ReasonUnspecified, "RFC 791"},
	{"1.0.0.0", "", ""},
	{"9.255.255.255", "", ""},
	{"10.0.0.0", egress.ReasonPrivate, "RFC 1918"},
	{"10.255.255.255", egress.ReasonPrivate, "RFC 1918"},
	{"11.0.0.0", "", ""},
	{"100.63.255.255", "", ""},
	{"100.64.0.0", egress.ReasonShared, "RFC 6598"},
	{"100.100.100.199", egress.ReasonShared, "RFC 6598"},
	{"100.100.100.200", egress.ReasonMetadata, "cloud metadata service"},
	{"100.127.255.255", egress.ReasonShared, "RFC 6598"},
	{"100.128.0.0", "", ""},
	{"126.255.255.255", "", ""},
	{"127.0.0.0", egress.ReasonLoopback, "RFC 1122"},
	{"127.0.0.1", egress.ReasonLoopback, "RFC 1122"},
	{"127.255.255.255", egress.ReasonLoopback, "RFC 1122"},
	{"128.0.0.0", "", ""},
	{"168.63.129.15", "", ""},
	{"168.63.129.16", egress.ReasonMetadata, "cloud platform service"},
	{"168.63.129.17", "", ""},
	{"169.253.255.255", "", ""},
	{"169.254.0.0", egress.ReasonLinkLocal, "RFC 3927"},
	{"169.254.169.253", egress.ReasonLinkLocal, "RFC 3927"},
	{"169.254.169.254", egress.ReasonMetadata, "cloud metadata service"},
	{"169.254.170.2", egress.ReasonMetadata, "container credentials service"},
	{"169.254.255.255", egress.ReasonLinkLocal, "RFC 3927"},
	{"169.255.0.0", "", ""},
	{"172.15.255.255", "", ""},
	{"172.16.0.0", egress.ReasonPrivate, "RFC 1918"},
	{"172.31.255.255", egress.ReasonPrivate, "RFC 1918"},
	{"172.32.0.0", "", ""},
	{"191.255.255.255", "", ""},
	{"192.0.0.0", egress.ReasonProtocol, "RFC 6890"},
	{"192.0.0.9", egress.ReasonProtocol, "RFC 6890"},
	{"192.0.0.170", egress.ReasonProtocol, "RFC 6890"},
	{"192.0.0.192", egress.ReasonMetadata, "cloud metadata service"},
	{"192.0.0.255", egress.ReasonProtocol, "RFC 6890"},
	{"192.0.1.0", "", ""},
	{"192.0.1.255", "", ""},
	{"192.0.2.0", egress.ReasonDocumentation, "RFC 5737"},
	{"192.0.2.255", egress.ReasonDocumentation, "RFC 5737"},
	{"192.0.3.0", "", ""},
	{"192.31.195.255", "", ""},
	{"192.31.196.0", egress.ReasonProtocol, "RFC 7535"},
	{"192.31.196.255", egress.ReasonProtocol, "RFC 7535"},
	{"192.31.197.0", "", ""},
	{"192.52.192.255", "", ""},
	{"192.52.193.0", egress.ReasonProtocol, "RFC 7450"},
	{"192.52.193.255", egress.ReasonProtocol, "RFC 7450"},
	{"192.52.194.0", "", ""},
	{"192.88.98.255", "", ""},
	{"192.88.99.0", egress.ReasonProtocol, "RFC 7526"},
	{"192.88.99.255", egress.ReasonProtocol, "RFC 7526"},
	{"192.88.100.0", "", ""},
	{"192.167.255.255", "", ""},
	{"192.168.0.0", egress.ReasonPrivate, "RFC 1918"},
	{"192.168.255.255", egress.ReasonPrivate, "RFC 1918"},
	{"192.169.0.0", "", ""},
	{"192.175.47.255", "", ""},
	{"192.175.48.0", egress.ReasonProtocol, "RFC 7534"},
	{"192.175.48.255", egress.ReasonProtocol, "RFC 7534"},
	{"192.175.49.0", "", ""},
	{"198.17.255.255", "", ""},
	{"198.18.0.0", egress.ReasonBenchmarking, "RFC 2544"},
	{"198.19.255.255", egress.ReasonBenchmarking, "RFC 2544"},
	{"198.20.0.0", "", ""},
	{"198.51.99.255", "", ""},
	{"198.51.100.0", egress.ReasonDocumentation, "RFC 5737"},
	{"198.51.100.255", egress.ReasonDocumentation, "RFC 5737"},
	{"198.51.101.0", "", ""},
	{"203.0.112.255", "", ""},
	{"203.0.113.0", egress.ReasonDocumentation, "RFC 5737"},
	{"203.0.113.255", egress.ReasonDocumentation, "RFC 5737"},
	{"203.0.114.0", "", ""},
	{"223.255.255.255", "", ""},
	{"224.0.0.0", egress.ReasonMulticast, "RFC 5771"},
	{"239.255.255.255", egress.ReasonMulticast, "RFC 5771"},
	{"240.0.0.0", egress.ReasonReserved, "RFC 1112"},
	{"255.255.255.254", egress.ReasonReserved, "RFC 1112"},
	{"255.255.255.255", egress.ReasonBroadcast, "RFC 919"},

	{"::", egress.ReasonUnspecified, "RFC 4291"},
	{"::1", egress.ReasonLoopback, "RFC 4291"},
	{"::2", egress.ReasonEmbeddedIPv4, "RFC 4291"},
	{"::127.0.0.1", egress.ReasonEmbeddedIPv4, "RFC 4291"},
	{"::8.8.8.8", egress.ReasonEmbeddedIPv4, "RFC 4291"},
	{"::ffff:ffff", egress.ReasonEmbeddedIPv4, "RFC 4291"},
	{"::1:0:0", egress.ReasonReserved, "RFC 4291"},
	{"::ffff:8.8.8.8", "", ""},
	{"::ffff:127.0.0.1", egress.ReasonLoopback, "RFC 1122"},
	{"::ffff:7f00:1", egress.ReasonLoopback, "RFC 1122"},
	{"::ffff:10.0.0.1", egress.ReasonPrivate, "RFC 1918"},
	{"::ffff:169.254.169.254", egress.ReasonMetadata, "cloud metadata service"},
	{"::ffff:0:8.8.8.8", egress.ReasonEmbeddedIPv4, "RFC 2765"},
	{"64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 4291"},
	{"64:ff9b::", egress.ReasonEmbeddedIPv4, "RFC 6052"},
	{"64:ff9b::a9fe:a9fe", egress.ReasonEmbeddedIPv4, "RFC 6052"},
	{"64:ff9b::8.8.8.8", egress.ReasonEmbeddedIPv4, "RFC 6052"},
	{"64:ff9b::ffff:ffff", egress.ReasonEmbeddedIPv4, "RFC 6052"},
	{"64:ff9b::1:0:0", egress.ReasonReserved, "RFC 4291"},
	{"64:ff9b:1::", egress.ReasonEmbeddedIPv4, "RFC 8215"},
	{"64:ff9b:1:ffff:ffff:ffff:ffff:ffff", egress.ReasonEmbeddedIPv4, "RFC 8215"},
	{"64:ff9b:2::", egress.ReasonReserved, "RFC 4291"},
	{"100::", egress.ReasonReserved, "RFC 6666"},
	{"100::ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 6666"},
	{"100:0:0:1::", egress.ReasonReserved, "RFC 9780"},
	{"100:0:0:1:ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 9780"},
	{"100:0:0:2::", egress.ReasonReserved, "RFC 4291"},
	{"1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 4291"},
	{"2000::1", "", ""},
	{"2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"2001::", egress.ReasonEmbeddedIPv4, "RFC 4380"},
	{"2001:0:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonEmbeddedIPv4, "RFC 4380"},
	{"2001:1::1", egress.ReasonProtocol, "RFC 2928"},
	{"2001:2::", egress.ReasonBenchmarking, "RFC 5180"},
	{"2001:2:0:ffff:ffff:ffff:ffff:ffff", egress.ReasonBenchmarking, "RFC 5180"},
	{"2001:2:1::", egress.ReasonProtocol, "RFC 2928"},
	{"2001:20::", egress.ReasonProtocol, "RFC 2928"},
	{"2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonProtocol, "RFC 2928"},
	{"2001:200::", "", ""},
	{"2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"2001:db8::", egress.ReasonDocumentation, "RFC 3849"},
	{"2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonDocumentation, "RFC 3849"},
	{"2001:db9::", "", ""},
	{"2001:4860:4860::8888", "", ""},
	{"2002::", egress.ReasonEmbeddedIPv4, "RFC 3056"},
	{"2002:7f00:1::", egress.ReasonEmbeddedIPv4, "RFC 3056"},
	{"2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonEmbeddedIPv4, "RFC 3056"},
	{"2003::", "", ""},
	{"2620:4f:7fff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"2620:4f:8000::", egress.ReasonProtocol, "RFC 7534"},
	{"2620:4f:8000:ffff:ffff:ffff:ffff:ffff", egress.ReasonProtocol, "RFC 7534"},
	{"2620:4f:8001::", "", ""},
	{"2a00:1450::5efe:a00:1", egress.ReasonEmbeddedIPv4, "RFC 5214"},
	{"2a00:1450::200:5efe:a00:1", egress.ReasonEmbeddedIPv4, "RFC 5214"},
	{"2a00:1450::100:5efe:a00:1", "", ""},
	{"2a00:1450::5eff:a00:1", "", ""},
	{"3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"3fff::", egress.ReasonDocumentation, "RFC 9637"},
	{"3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonDocumentation, "RFC 9637"},
	{"3fff:1000::", "", ""},
	{"3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"4000::", egress.ReasonReserved, "RFC 4291"},
	{"5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 4291"},
	{"5f00::", egress.ReasonProtocol, "RFC 9602"},
	{"5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonProtocol, "RFC 9602"},
	{"5f01::", egress.ReasonReserved, "RFC 4291"},
	{"fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 4291"},
	{"fc00::", egress.ReasonPrivate, "RFC 4193"},
	{"fd00:ec2::254", egress.ReasonMetadata, "cloud metadata service"},
	{"fd00:ec2::255", egress.ReasonPrivate, "RFC 4193"},
	{"fd20:ce::254", egress.ReasonMetadata, "cloud metadata service"},
	{"fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonPrivate, "RFC 4193"},
	{"fe00::", egress.ReasonReserved, "RFC 4291"},
	{"fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonReserved, "RFC 4291"},
	{"fe80::", egress.ReasonLinkLocal, "RFC 4291"},
	{"febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonLinkLocal, "RFC 4291"},
	{"fec0::", egress.ReasonPrivate, "RFC 3879"},
	{"feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonPrivate, "RFC 3879"},
	{"ff00::", egress.ReasonMulticast, "RFC 4291"},
	{"ff02::1", egress.ReasonMulticast, "RFC 4291"},
	{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", egress.ReasonMulticast, "RFC 4291"},
	{"fe80::1%eth0", egress.ReasonZone, "RFC 4007"},
	{"2606:4700::1%eth0", egress.ReasonZone, "RFC 4007"},
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, row := range boundaries {
		got := egress.Classify(netip.MustParseAddr(row.addr))
		if got.Public() != (row.reason == "") || got.Reason() != row.reason || got.Source() != row.source {
			t.Errorf("Classify(%s) = %s, want %q (%s)", row.addr, got, row.reason, row.source)
		}
	}
}

// A mapped address is exactly as public as the IPv4 address inside.
func TestClassifyMappedIsInner(t *testing.T) {
	t.Parallel()
	for _, row := range boundaries {
		inner := netip.MustParseAddr(row.addr)
		if !inner.Is4() {
			continue
		}
		if mapped := egress.Classify(netip.AddrFrom16(inner.As16())); mapped != egress.Classify(inner) {
			t.Errorf("mapped %s = %s", row.addr, mapped)
		}
	}
}

func TestZeroVerdictRefuses(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]egress.Verdict{"zero": {}, "invalid": egress.Classify(netip.Addr{})} {
		if v.Public() || v.Reason() != egress.ReasonInvalid || v.String() != "invalid_address" {
			t.Errorf("%s verdict = %s", name, v)
		}
	}
}

func BenchmarkClassify(b *testing.B) {
	addrs := []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2606:4700::1"), netip.MustParseAddr("127.0.0.1")}
	b.ReportAllocs()
	for b.Loop() {
		for _, addr := range addrs {
			_ = egress.Classify(addr)
		}
	}
}
