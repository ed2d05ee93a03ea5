package layout

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
)

// The two kinds of Kafka: kfake in our own process, and a broker in Java.
const (
	EmbeddedKafka = "embedded"
	ApacheKafka   = "apache"
)

// Bounds of one local platform.
const (
	mostCells     = 64
	mostEdges     = 8
	mostProcesses = 8
)

// ErrUnsupported is an option of the contract whose part comes with a later
// release.
var ErrUnsupported = errors.New("not supported by this release")

// ErrOption is an option that makes no sense.
var ErrOption = errors.New("invalid option")

// Options is what `cellquota-dev up` was asked for.
type Options struct {
	// DataDir holds everything; it is made when it does not exist.
	DataDir string
	// Cells is how many cells there are, named cell-1 to cell-N. 1 to 64.
	Cells int
	// Regions are dealt to the cells in turn.
	Regions []string
	// Kafka is EmbeddedKafka or ApacheKafka.
	Kafka string
	// ControlPlanes is how many replicas there are: 1 or 3.
	ControlPlanes int
	// Etcd is single, one member, or cluster3, three members of which any two
	// serve.
	Etcd string
	// Edges is how many edge processes there are. 1 to 8.
	Edges int
	// Processes is how many processes each cell has, or, with SplitRoles, each
	// role of each cell. 1 to 8.
	Processes  int
	SplitRoles bool
	// Replicated gives each cell's Redis a replica and three sentinels, and its PostgreSQL a
	// synchronous standby.
	Replicated bool
	// TLS encrypts every connection of the platform, under an authority of its own, and
	// runs the servers without dev.
	TLS bool
	// Restart starts again what ends by itself.
	Restart bool
	// Set are component.key=value settings.
	Set []string
}

// Kinds of etcd.
const (
	EtcdSingle   = "single"
	EtcdCluster3 = "cluster3"
)

// Defaults is what `up` does without flags.
func Defaults() Options {
	return Options{
		Cells: 1, Regions: []string{"local"}, Kafka: EmbeddedKafka, ControlPlanes: 1, Etcd: EtcdSingle,
		Edges: 1, Processes: 1,
	}
}

var regionName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Check names everything that is wrong with o, each with its flag.
func (o Options) Check() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrOption}, args...)...))
		}
	}
	later := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...))
		}
	}
	bad(o.DataDir != "", "--data-dir is required")
	bad(o.Cells >= 1 && o.Cells <= mostCells, "--cells %d is not within 1 to %d", o.Cells, mostCells)
	bad(o.Edges >= 1 && o.Edges <= mostEdges, "--edges %d is not within 1 to %d", o.Edges, mostEdges)
	bad(o.Processes >= 1 && o.Processes <= mostProcesses, "--processes %d is not within 1 to %d", o.Processes, mostProcesses)
	bad(len(o.Regions) > 0, "--regions names no region")
	for i, r := range o.Regions {
		bad(regionName.MatchString(r), "--regions: %q is not of the form %s", r, regionName)
		bad(!slices.Contains(o.Regions[:i], r), "--regions names %q twice", r)
	}
	bad(slices.Contains([]string{EmbeddedKafka, ApacheKafka}, o.Kafka), "--kafka %q is neither embedded nor apache", o.Kafka)
	bad(slices.Contains([]string{EtcdSingle, EtcdCluster3}, o.Etcd), "--etcd %q is neither single nor cluster3", o.Etcd)
	bad(o.ControlPlanes == 1 || o.ControlPlanes == 3, "--control-planes %d is neither 1 nor 3", o.ControlPlanes)
	later(!o.TLS || o.Kafka == EmbeddedKafka, "--tls with --kafka %s; supported: embedded", o.Kafka)
	later(!o.TLS || !o.Replicated, "--tls with --replicated; supported: one of them")
	_, err := parseSettings(o.Set, o)
	return errors.Join(append(errs, err)...)
}

// Absolute makes the data directory's path independent of where we stand.
func (o Options) Absolute() (Options, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return o, fmt.Errorf("--data-dir: %w", err)
	}
	o.DataDir = dir
	return o, nil
}
