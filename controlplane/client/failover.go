package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

const (
	// hedge is how long one replica may take to be connected to before another one
	// is tried beside it.
	hedge = 250 * time.Millisecond
	// pulse is how often a replica is asked for its health while a call waits for it.
	pulse = time.Second
	// firstPause and lastPause bound the wait between two rounds over all replicas.
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
)

// failover is one connection to each of several equal replicas: a call goes to the
// one that was good last, and to the next when that one is left.
type failover struct {
	conns []*grpc.ClientConn
	addrs []string
	clock clock.Clock
	// wait makes calls wait, within their deadline, for any replica to be there.
	wait bool
	good atomic.Int64 // index of the replica in use
	seen revision     // of etcd, in the answers so far
}

var _ grpc.ClientConnInterface = (*failover)(nil)

func newFailover(addrs []string, o transport.DialOptions) (*failover, error) {
	f := &failover{addrs: addrs, clock: clock.System(), wait: o.WaitForReady, seen: revision{clock: clock.System()}}
	o.WaitForReady = false // to wait for one of several is this type's affair
	for _, addr := range addrs {
		conn, err := transport.Dial(addr, o)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.conns = append(f.conns, conn)
	}
	return f, nil
}

// Close ends every connection.
func (f *failover) Close() error {
	var errs []error
	for _, conn := range f.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Invoke makes a unary call, on another replica when one is left and the call may
// be made again. Every replica is tried once; while none of them could even be
// reached, and wait is set, they are tried again until the deadline.
func (f *failover) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	again := repeatable(method, req)
	pause := firstPause
	for {
		reached, err := f.round(ctx, method, req, reply, again, opts...)
		if err == nil || reached || !f.wait {
			return err
		}
		if f.clock.Sleep(ctx, pause) != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// round tries every replica once. It tells whether any was reached.
func (f *failover) round(ctx context.Context, method string, req, reply any, again bool, opts ...grpc.CallOption) (reached bool, err error) {
	for range f.conns {
		i, connected := f.ready(ctx)
		reached = reached || connected
		if !connected && !again { // to send it now would leave its outcome open
			return reached, fmt.Errorf("%w: none of %d replicas is connected", rpcstatus.ErrUnavailable, len(f.conns))
		}
		var header metadata.MD
		err = f.conns[i].Invoke(f.seen.ask(ctx), method, req, reply, append(slices.Clone(opts), grpc.Header(&header))...)
		f.seen.told(header)
		if !left(err) {
			return true, err
		}
		f.leave(i)
		if rpcstatus.MayHaveHappened(err) && !again || ctx.Err() != nil {
			return reached, err
		}
		if m, ok := reply.(proto.Message); ok {
			proto.Reset(m)
		}
	}
	return reached, fmt.Errorf("none of %d replicas: %w", len(f.conns), err)
}

// NewStream opens a stream on a replica that is there. A stream that ends is its
// caller's to open again; it comes to another replica then.
func (f *failover) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	var err error
	for range f.conns {
		i, _ := f.ready(ctx)
		var s grpc.ClientStream
		if s, err = f.conns[i].NewStream(ctx, desc, method, opts...); err == nil {
			return followed{s, func() { f.leave(i) }}, nil
		}
		if !left(err) || ctx.Err() != nil {
			return nil, err
		}
		f.leave(i)
	}
	return nil, err
}

// followed notes that a stream's replica is to be left.
type followed struct {
	grpc.ClientStream
	leave func()
}

func (s followed) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if left(err) {
		s.leave()
	}
	return err
}

// leave goes on to the next replica, unless another call has already.
func (f *failover) leave(i int) {
	f.good.CompareAndSwap(int64(i), int64((i+1)%len(f.conns)))
}

// ready gives the replica in use, or, where that is not connected soon, the next
// that is. When none is, it gives the one in use and false, and the call, which does
// not leave this process then, says why not.
func (f *failover) ready(ctx context.Context) (replica int, reached bool) {
	first := int(f.good.Load())
	for k := range f.conns {
		i := (first + k) % len(f.conns)
		if connected(ctx, f.conns[i]) {
			f.good.CompareAndSwap(int64(first), int64(i))
			return i, true
		}
	}
	return first, false
}

// connected waits a little for a connection.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, hedge)
	defer cancel()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return true
		case connectivity.TransientFailure, connectivity.Shutdown:
			return false
		case connectivity.Idle:
			conn.Connect()
			fallthrough
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return false
			}
		}
	}
}
