package shard

import (
	"errors"
	"io"
	"net"
	"strings"
)

// isNetwork recognises a connection that ended under us. pgx reports a connection that it had
// closed itself after an earlier failure only by text ("conn closed"), so that one is read.
func isNetwork(err error) bool {
	var op net.Error
	if errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "conn closed") || strings.Contains(text, "closed pool")
}
