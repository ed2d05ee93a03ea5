package limit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Networks knows which peers are our own proxies.
type Networks struct {
	trusted []netip.Prefix
}

// NewNetworks reads addresses and prefixes ("10.0.0.0/8", "192.0.2.7") of trusted proxies.
func NewNetworks(trusted []string) (*Networks, error) {
	n := &Networks{}
	for _, s := range trusted {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, fmt.Errorf("trusted_proxies: %q is neither an address nor a prefix", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		n.trusted = append(n.trusted, p.Masked())
	}
	return n, nil
}

// maxHops bounds how many entries of X-Forwarded-For are read, from the right.
const maxHops = 16

// Of is the network address a call is counted under: the peer, or, where that is a trusted proxy,
// the rightmost entry of X-Forwarded-For that is not one. Whatever stands left of it was written by
// somebody we do not trust. IPv6 counts by /64, the smallest network one customer is given.
func (n *Networks) Of(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	addr := peer.Addr().Unmap()
	if len(n.trusted) == 0 || !n.isTrusted(addr) {
		return text(addr)
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && i >= len(hops)-maxHops; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break // a proxy of ours wrote no address; count under the last hop that is one
		}
		addr = hop.Unmap().WithZone("")
		if !n.isTrusted(addr) {
			break
		}
	}
	return text(addr)
}

func (n *Networks) isTrusted(a netip.Addr) bool {
	for _, p := range n.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func text(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a.String()
	}
	return p.String()
}
