package ctl

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A certificate that ends within 14 days is a warning of the status.
func TestCertificateWords(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	day := 24 * time.Hour
	for _, row := range []struct {
		left  time.Duration
		warns string
	}{{15 * day, ""}, {14*day - time.Hour, "ends in 13 days"}, {-time.Second, "ENDED"}} {
		lines := certificateWords([]*pb.CertificateStatus{{Key: "etcd.tls", Name: "spiffe://d/controlplane/a", NotAfter: timestamppb.New(now.Add(row.left))}}, now)
		if len(lines) != 1 || strings.HasPrefix(lines[0], "WARNING") != (row.warns != "") || !strings.Contains(lines[0], row.warns) || !strings.Contains(lines[0], "etcd.tls spiffe://d/controlplane/a") {
			t.Errorf("%s before its end: %q", row.left, lines)
		}
	}
}
