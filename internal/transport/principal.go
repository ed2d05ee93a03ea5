package transport

import (
	"context"
	"crypto/x509"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Principal is who calls: an operator or another process of ours.
type Principal struct {
	// Name is the operator's name, or "cell/ID", "edge/ID"; never empty.
	Name string
	// Role is one of the operators' roles, or "cell", "edge", "controlplane".
	Role string
	// Regions bound what a region-operator may touch; empty: no region.
	Regions []string
	// Issuers minted what the caller showed, nearest first; none of them counts as a
	// second person beside it. Empty: nobody of ours did.
	Issuers []string
}

// Authenticator says who calls, or rpcstatus.ErrUnauthenticated. It runs for
// every call, each stream once.
type Authenticator func(ctx context.Context, c Caller) (Principal, error)

// Authorizer returns nil when p may call fullMethod ("/package.Service/Method"),
// else rpcstatus.ErrPermissionDenied. What depends on the request, such as a
// region, is asked by the handler.
type Authorizer func(ctx context.Context, p Principal, fullMethod string) error

// Caller is what the wire tells about the other side.
type Caller struct {
	// Metadata is what came with the call; its names are in lower case.
	Metadata metadata.MD
	// Addr is the other end of the connection.
	Addr net.Addr
	// Certificate is the caller's verified leaf certificate; nil without one.
	Certificate *x509.Certificate
	// Encrypted is false for development's plain text.
	Encrypted bool
}

// Bearer returns the token of the authorization metadata. Two of them are none.
func (c Caller) Bearer() (token string, ok bool) {
	values := c.Metadata.Get("authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	return token, found && token != "" && strings.EqualFold(scheme, "Bearer")
}

// Workload returns what the certificate's SAN spiffe://DOMAIN/KIND/ID says. A
// certificate of another domain, with several such names or with another path
// names no workload.
func (c Caller) Workload(domain string) (kind, id string, ok bool) {
	if c.Certificate == nil || len(c.Certificate.URIs) != 1 {
		return "", "", false
	}
	u := c.Certificate.URIs[0]
	if u.Scheme != "spiffe" || u.Host != domain || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", "", false
	}
	return splitWorkload(strings.TrimPrefix(u.Path, "/"))
}

// splitWorkload cuts "cell/cell-1".
func splitWorkload(s string) (kind, id string, ok bool) {
	kind, id, ok = strings.Cut(s, "/")
	return kind, id, ok && kind != "" && id != "" && !strings.Contains(id, "/")
}

// callerOf reads the call's context.
func callerOf(ctx context.Context) Caller {
	var c Caller
	c.Metadata, _ = metadata.FromIncomingContext(ctx)
	p, ok := peer.FromContext(ctx)
	if !ok {
		return c
	}
	c.Addr = p.Addr
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	c.Encrypted = ok
	if ok && len(info.State.VerifiedChains) > 0 {
		c.Certificate = info.State.VerifiedChains[0][0]
	}
	return c
}

type principalKey struct{}

// WithPrincipal returns a context in which PrincipalFrom finds p: for tests of
// handlers, and for work a server does in its own name.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns who calls; false outside a call.
func PrincipalFrom(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

// admit authenticates and authorises one call; the principal is the zero one
// until it is known.
func (o ServerOptions) admit(ctx context.Context, method string) (context.Context, Principal, error) {
	if open(method) {
		return ctx, Principal{}, nil
	}
	if o.Authenticator == nil {
		return nil, Principal{}, errNoAuthenticator
	}
	p, err := o.Authenticator(ctx, callerOf(ctx))
	if err != nil {
		return nil, Principal{}, err
	}
	if p.Name == "" {
		return nil, Principal{}, errNameless
	}
	if o.Authorizer != nil {
		if err := o.Authorizer(ctx, p, method); err != nil {
			return nil, p, err
		}
	}
	return WithPrincipal(ctx, p), p, nil
}

// tell hands a call that failed to Failed, and gives its error back.
func (o ServerOptions) tell(p Principal, method string, err error) error {
	if err != nil && o.Failed != nil {
		o.Failed(p, method, err)
	}
	return err
}

// open are the methods without a principal: probes of the platform, and
// reflection, which exists in development only.
func open(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/") || strings.HasPrefix(method, "/grpc.reflection.")
}

func principalUnary(o ServerOptions) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, p, err := o.admit(ctx, info.FullMethod)
		if err != nil {
			return nil, o.tell(p, info.FullMethod, err)
		}
		out, err := handler(ctx, req)
		return out, o.tell(p, info.FullMethod, err)
	}
}

func principalStream(o ServerOptions) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, p, err := o.admit(ss.Context(), info.FullMethod)
		if err != nil {
			return o.tell(p, info.FullMethod, err)
		}
		return o.tell(p, info.FullMethod, handler(srv, withContext{ss, ctx}))
	}
}

// withContext is a stream under another context.
type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s withContext) Context() context.Context { return s.ctx }
