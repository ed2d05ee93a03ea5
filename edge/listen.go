package edge

import (
	"net"
	"sync"
)

// bounded lets only so many connections be open at once. Beyond it nobody is accepted: newcomers
// wait in the kernel's queue, which is bounded too.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func boundConnections(l net.Listener, most int) net.Listener {
	return &bounded{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits for a place, then for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: conn, leave: func() { <-b.places }}, nil
}

// Close ends the listener and whoever waits for a place.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// placed gives its place back when it is closed, once.
type placed struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close closes the connection.
func (p *placed) Close() error {
	err := p.Conn.Close()
	p.once.Do(p.leave)
	return err
}
