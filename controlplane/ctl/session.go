package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// find says which platform is meant.
func (c *cli) find() (target.Target, error) {
	return target.Find(target.Options{EndpointsFile: c.endpoints, Context: c.context, ConfigFile: c.ConfigFile, Env: c.Env})
}

// speak runs do with a connection as role, within --timeout.
func (c *cli) speak(ctx context.Context, role target.Role, do func(context.Context, *client.Client) error) error {
	if c.timeout <= 0 {
		return usage("--timeout %s: must be positive", c.timeout)
	}
	cp, err := c.dial(role)
	if err != nil {
		return err
	}
	defer func() { _ = cp.Close() }() // everything was answered
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return do(ctx, cp)
}

func (c *cli) dial(role target.Role) (*client.Client, error) {
	if c.role != "" {
		if !slices.Contains(target.Roles, c.role) {
			return nil, usage("--role %q: must be one of %v", c.role, target.Roles)
		}
		role = target.Role(c.role)
	}
	t, err := c.find()
	if err != nil {
		return nil, err
	}
	return t.Dial(role)
}

// How often a call that was not carried out is made again.
const (
	callTries = 4
	callPause = 250 * time.Millisecond
)

// call makes a call, again while the control plane is unavailable. A mutation carries its operation
// id, so that a repeat is the same mutation.
func call[Req, Resp any](ctx context.Context, c *cli, f func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), in *Req) (*Resp, error) {
	pause := callPause
	for try := 1; ; try++ {
		out, err := f(ctx, in)
		if err == nil || try == callTries || !errors.Is(err, rpcstatus.ErrUnavailable) {
			return out, err
		}
		if c.Clock.Sleep(ctx, pause) != nil {
			return nil, err
		}
		pause *= 2
	}
}

// maxFile bounds a file that is sent to the control plane.
const maxFile = 1 << 20

// readFile reads a file of -f; "-" is standard input.
func (c *cli) readFile(name string) (string, error) {
	in := c.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", usage("-f: %v", err)
		}
		defer func() { _ = f.Close() }() // only read
		in = f
	}
	text, err := readAtMost(in, maxFile)
	if err != nil {
		return "", usage("-f %s: %v", name, err)
	}
	return text, nil
}

var errTooLong = fmt.Errorf("must be at most %d bytes", maxFile)
