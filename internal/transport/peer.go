package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"
)

// ErrWrongPeer refuses a server whose certificate is good and names another than
// who was called.
var ErrWrongPeer = errors.New("the server's certificate names another workload")

// Peer is who a server must be, beside being at the address: without it any process
// of the platform could answer for any other one there. The zero Peer is anybody.
type Peer struct {
	// Domain is the trust domain of its certificate.
	Domain string
	// Workload is "cell/cell-1"; "cell/" is any cell.
	Workload string
}

func (p Peer) check(info credentials.AuthInfo) error {
	if p.Workload == "" {
		return nil
	}
	shown, ok := info.(credentials.TLSInfo)
	if !ok || len(shown.State.PeerCertificates) == 0 {
		return fmt.Errorf("%w: it shows none, %s was called", ErrWrongPeer, p.Workload)
	}
	kind, id, named := Caller{Certificate: shown.State.PeerCertificates[0]}.Workload(p.Domain)
	name := kind + "/" + id
	wanted := name == p.Workload || kind+"/" == p.Workload
	if !named || !wanted {
		return fmt.Errorf("%w: %v, called was spiffe://%s/%s", ErrWrongPeer, shown.State.PeerCertificates[0].URIs, p.Domain, p.Workload)
	}
	return nil
}
