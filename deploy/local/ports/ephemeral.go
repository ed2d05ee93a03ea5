package ports

import (
	"fmt"
	"os"
)

const (
	// usualEphemeral is Linux's default start of the ephemeral range.
	usualEphemeral = 32768
	// firstOfTests is where internal/testkit's ports begin.
	firstOfTests = 20000
)

// ephemeral is the first port that the kernel lends to outgoing connections.
// Where it leaves us no room (some containers start at 1024), the usual one is
// taken and an outgoing connection may be in the way of a restart.
func ephemeral() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usualEphemeral
	}
	return ephemeralFrom(string(text))
}

func ephemeralFrom(text string) int {
	var first, last int
	if n, err := fmt.Sscan(text, &first, &last); n != 2 || err != nil || first < lowest+16*block {
		return usualEphemeral
	}
	return first
}

// highest is the first port that is not ours: tests lease theirs from 20000 on.
func highest() int { return min(ephemeral(), firstOfTests) }
