package rpcstatus

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"google.golang.org/grpc"
)

// UnaryServer maps what handlers return to statuses; what it has to hide it
// writes to log, once.
func UnaryServer(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if err == nil {
			return resp, nil
		}
		return nil, outgoing(ctx, log, info.FullMethod, err)
	}
}

// StreamServer is UnaryServer for streams.
func StreamServer(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return outgoing(ss.Context(), log, info.FullMethod, handler(srv, ss))
	}
}

// outgoing maps err. When the call's own context has ended, that is the answer,
// whatever the store underneath made of it.
func outgoing(ctx context.Context, log *slog.Logger, method string, err error) error {
	st, unknown := standard.convert(err)
	if !unknown {
		return st
	}
	if ended := ctx.Err(); ended != nil {
		log.WarnContext(ctx, "call ended before its handler", "event", "rpc_call_ended",
			"method", method, "error", err, "cause", ended)
		return ToStatus(ended)
	}
	log.ErrorContext(ctx, "unclassified error hidden from the caller",
		"event", "rpc_internal_error", "method", method, "error", err)
	return st
}

// UnaryClient makes sentinels of the statuses that come back.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return FromStatus(invoke(ctx, method, req, reply, cc, opts...))
	}
}

// StreamClient is UnaryClient for streams; io.EOF stays io.EOF.
func StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		cs, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, FromStatus(err)
		}
		return clientStream{cs}, nil
	}
}

type clientStream struct{ grpc.ClientStream }

func (s clientStream) SendMsg(m any) error { return incoming(s.ClientStream.SendMsg(m)) }
func (s clientStream) RecvMsg(m any) error { return incoming(s.ClientStream.RecvMsg(m)) }
func (s clientStream) CloseSend() error    { return incoming(s.ClientStream.CloseSend()) }

func incoming(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return FromStatus(err)
}
