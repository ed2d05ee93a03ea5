package fault

import (
	"net"
	"sync"
	"time"
)

// piece bounds what is read at once.
const piece = 32 << 10

// accept takes connections until the listener ends.
func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(near) })
	}
}

// serve is one connection from end to end.
func (p *Proxy) serve(near net.Conn) {
	defer func() { _ = near.Close() }()
	if !p.admit(near, nil) {
		return
	}
	defer p.drop(near)
	far, err := net.Dial("tcp", p.target())
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !p.admit(near, far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(near, near, far, ToServer) })
	both.Go(func() { p.pump(near, far, near, ToClient) })
	both.Wait()
}

func (p *Proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// admit remembers a connection to hurt; false while the wire is broken.
func (p *Proxy) admit(near, far net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return false
	}
	if far == nil {
		p.accepted++
	}
	p.conns[near] = far
	return true
}

func (p *Proxy) drop(near net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, near)
	delete(p.lossy, near)
}

// pump carries one direction. The end of one direction ends the connection, as a
// reset would, but not while it is silent: who is cut off does not hear of it.
func (p *Proxy) pump(near, from, to net.Conn, way Way) {
	defer func() {
		if !p.lost(near, way) {
			_ = from.Close()
			_ = to.Close()
		}
	}()
	buffer := make([]byte, piece)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.lost(near, way) {
			p.late()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// lost tells whether bytes of a direction vanish now, and marks their connection.
func (p *Proxy) lost(near net.Conn, way Way) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent&way == 0 {
		return false
	}
	p.lossy[near] = true
	return true
}

// late holds a piece back for the delay, or until the test ends.
func (p *Proxy) late() {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closed:
	}
}
