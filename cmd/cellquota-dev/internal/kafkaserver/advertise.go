package kafkaserver

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// advertisedListeners is Kafka's own name for where clients are sent.
const advertisedListeners = "advertised.listeners"

// listen is net.Listen.
type listen = func(network, address string) (net.Listener, error)

// listener listens where it is told to and says that it listens at what is
// advertised, for kfake tells clients what its listener says. Empty: the truth.
func listener(advertised string) (listen, error) {
	if advertised == "" {
		return net.Listen, nil
	}
	addr, plain := strings.CutPrefix(advertised, "PLAINTEXT://")
	at, err := netip.ParseAddrPort(addr)
	if !plain || err != nil {
		return nil, fmt.Errorf("%s %q is not of the form PLAINTEXT://address:port", advertisedListeners, advertised)
	}
	return func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		return elsewhere{l, net.TCPAddrFromAddrPort(at)}, nil
	}, nil
}

// elsewhere is a listener that clients reach through another address.
type elsewhere struct {
	net.Listener
	at net.Addr
}

// Addr implements net.Listener.
func (e elsewhere) Addr() net.Addr { return e.at }
