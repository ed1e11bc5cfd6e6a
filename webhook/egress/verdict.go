package egress

import "net/netip"

// Reason says why a host or an address is refused. The set is closed; the words
// are safe to log and to show.
type Reason string

// The reasons; the zero value means that nothing is refused.
const (
	ReasonInvalid       Reason = "invalid_address"
	ReasonUnspecified   Reason = "unspecified"
	ReasonLoopback      Reason = "loopback"
	ReasonPrivate       Reason = "private"
	ReasonShared        Reason = "shared_address_space"
	ReasonLinkLocal     Reason = "link_local"
	ReasonMetadata      Reason = "metadata"
	ReasonProtocol      Reason = "protocol_assignment"
	ReasonDocumentation Reason = "documentation"
	ReasonBenchmarking  Reason = "benchmarking"
	ReasonMulticast     Reason = "multicast"
	ReasonBroadcast     Reason = "broadcast"
	ReasonReserved      Reason = "reserved"
	ReasonEmbeddedIPv4  Reason = "embedded_ipv4"
	ReasonZone          Reason = "zone"
	ReasonSpelling      Reason = "host_spelling"
	ReasonLocalName     Reason = "local_name"
	ReasonScheme        Reason = "scheme"
	ReasonNoClient      Reason = "no_client"
)

// Verdict is the judgement on one address. Its zero value refuses.
type Verdict struct {
	public bool
	reason Reason
	source string
}

// Public reports whether the address is a globally reachable unicast address
// that no registry sets apart.
func (v Verdict) Public() bool { return v.public }

// Reason says why the address is not public; "" when it is.
func (v Verdict) Reason() Reason {
	if !v.public && v.reason == "" {
		return ReasonInvalid
	}
	return v.reason
}

// Source names the document that sets the address apart, such as "RFC 1918";
// "" when the address is public.
func (v Verdict) Source() string { return v.source }

// String returns the verdict for people: "public", or the reason and its source.
func (v Verdict) String() string {
	if v.public {
		return "public"
	}
	if v.source == "" {
		return string(v.Reason())
	}
	return string(v.Reason()) + " (" + v.source + ")"
}

// specialRange is one row of a registry.
type specialRange struct {
	prefix netip.Prefix
	reason Reason
	source string
}

func special(cidr string, reason Reason, source string) specialRange {
	return specialRange{netip.MustParsePrefix(cidr), reason, source}
}

// The rows are tried in order, so a metadata address stands before the range
// that contains it. Rows that IANA calls globally reachable (AS112, AMT, the
// anycast addresses of 192.0.0.0/24) are refused as well: no webhook lives there.
var (
	special4 = []specialRange{
		special("169.254.169.254/32", ReasonMetadata, "cloud metadata service"),
		special("169.254.170.2/32", ReasonMetadata, "container credentials service"),
		special("100.100.100.200/32", ReasonMetadata, "cloud metadata service"),
		special("168.63.129.16/32", ReasonMetadata, "cloud platform service"),
		special("192.0.0.192/32", ReasonMetadata, "cloud metadata service"),
		special("0.0.0.0/32", ReasonUnspecified, "RFC 1122"),
		special("0.0.0.0/8", ReasonUnspecified, "RFC 791"),
		special("10.0.0.0/8", ReasonPrivate, "RFC 1918"),
		special("100.64.0.0/10", ReasonShared, "RFC 6598"),
		special("127.0.0.0/8", ReasonLoopback, "RFC 1122"),
		special("169.254.0.0/16", ReasonLinkLocal, "RFC 3927"),
		special("172.16.0.0/12", ReasonPrivate, "RFC 1918"),
		special("192.0.0.0/24", ReasonProtocol, "RFC 6890"),
		special("192.0.2.0/24", ReasonDocumentation, "RFC 5737"),
		special("192.31.196.0/24", ReasonProtocol, "RFC 7535"),
		special("192.52.193.0/24", ReasonProtocol, "RFC 7450"),
		special("192.88.99.0/24", ReasonProtocol, "RFC 7526"),
		special("192.168.0.0/16", ReasonPrivate, "RFC 1918"),
		special("192.175.48.0/24", ReasonProtocol, "RFC 7534"),
		special("198.18.0.0/15", ReasonBenchmarking, "RFC 2544"),
		special("198.51.100.0/24", ReasonDocumentation, "RFC 5737"),
		special("203.0.113.0/24", ReasonDocumentation, "RFC 5737"),
		special("224.0.0.0/4", ReasonMulticast, "RFC 5771"),
		special("255.255.255.255/32", ReasonBroadcast, "RFC 919"),
		special("240.0.0.0/4", ReasonReserved, "RFC 1112"),
	}
	special6 = []specialRange{
		special("fd00:ec2::254/128", ReasonMetadata, "cloud metadata service"),
		special("fd00:ec2::23/128", ReasonMetadata, "container credentials service"),
		special("fd20:ce::254/128", ReasonMetadata, "cloud metadata service"),
		special("fd00:42::42/128", ReasonMetadata, "cloud metadata service"),
		special("::/128", ReasonUnspecified, "RFC 4291"),
		special("::1/128", ReasonLoopback, "RFC 4291"),
		special("::/96", ReasonEmbeddedIPv4, "RFC 4291"),
		special("::ffff:0:0:0/96", ReasonEmbeddedIPv4, "RFC 2765"),
		special("64:ff9b::/96", ReasonEmbeddedIPv4, "RFC 6052"),
		special("64:ff9b:1::/48", ReasonEmbeddedIPv4, "RFC 8215"),
		special("100::/64", ReasonReserved, "RFC 6666"),
		special("100:0:0:1::/64", ReasonReserved, "RFC 9780"),
		special("2001::/32", ReasonEmbeddedIPv4, "RFC 4380"),
		special("2001:2::/48", ReasonBenchmarking, "RFC 5180"),
		special("2001::/23", ReasonProtocol, "RFC 2928"),
		special("2001:db8::/32", ReasonDocumentation, "RFC 3849"),
		special("2002::/16", ReasonEmbeddedIPv4, "RFC 3056"),
		special("2620:4f:8000::/48", ReasonProtocol, "RFC 7534"),
		special("3fff::/20", ReasonDocumentation, "RFC 9637"),
		special("5f00::/16", ReasonProtocol, "RFC 9602"),
		special("fc00::/7", ReasonPrivate, "RFC 4193"),
		special("fe80::/10", ReasonLinkLocal, "RFC 4291"),
		special("fec0::/10", ReasonPrivate, "RFC 3879"),
		special("ff00::/8", ReasonMulticast, "RFC 4291"),
	}
	globalUnicast6 = netip.MustParsePrefix("2000::/3")
)

// Classify judges addr by the IANA special-purpose registries and the known
// metadata services. An IPv4-mapped IPv6 address is judged as its IPv4 address;
// every other form that carries an IPv4 address inside is refused, and so is
// what lies outside the global unicast space.
func Classify(addr netip.Addr) Verdict {
	if !addr.IsValid() {
		return Verdict{reason: ReasonInvalid}
	}
	if addr.Zone() != "" {
		return Verdict{reason: ReasonZone, source: "RFC 4007"}
	}
	addr = addr.Unmap()
	if addr.Is4() {
		return classifyIn(addr, special4)
	}
	v := classifyIn(addr, special6)
	switch {
	case !v.public:
		return v
	case !globalUnicast6.Contains(addr):
		return Verdict{reason: ReasonReserved, source: "RFC 4291"}
	case isatap(addr):
		return Verdict{reason: ReasonEmbeddedIPv4, source: "RFC 5214"}
	}
	return v
}

func classifyIn(addr netip.Addr, rows []specialRange) Verdict {
	for i := range rows {
		if rows[i].prefix.Contains(addr) {
			return Verdict{reason: rows[i].reason, source: rows[i].source}
		}
	}
	return Verdict{public: true}
}

// isatap reports whether the interface identifier of addr is the one that
// ISATAP builds from an IPv4 address, with or without the universal bit.
func isatap(addr netip.Addr) bool {
	b := addr.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
