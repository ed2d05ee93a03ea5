package ctl

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// messageOf is an answer of the control plane.
type messageOf = proto.Message

// required marks a flag; it was defined a line above, so it exists.
func required(cmd *cobra.Command, flag string) { _ = cmd.MarkFlagRequired(flag) }

func number(n int64) string { return strconv.FormatInt(n, 10) }

func count(n int32) string { return strconv.FormatInt(int64(n), 10) }

// millis is a duration for people: 1.2s.
func millis(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// age is how long ago; "" for never.
func age(ms int64) string {
	if ms < 0 {
		return ""
	}
	return millis(ms)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// reachable is the shard's word: ok, no answer, or "" where nobody asked it.
func reachable(cell *pb.Cell) string {
	switch {
	case cell.GetShardReachable():
		return "ok"
	case cell.GetShardDetail() != "":
		return "no answer"
	}
	return ""
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }
