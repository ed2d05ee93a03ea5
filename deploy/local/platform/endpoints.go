package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNotRunning means that no platform is ready in the directory asked for: its
// endpoints file or its control socket is not there, or nobody listens on it.
var ErrNotRunning = errors.New("no local platform is running there")

// Endpoints is the content of endpoints.json: a part of the outside contract.
// Addresses are host:port on loopback, metrics and HTTP are URLs, process ids
// are those of the last start, also while a process is down.
type Endpoints struct {
	Etcd          Etcd              `json:"etcd"`
	Kafka         Kafka             `json:"kafka"`
	ControlPlanes []ControlPlane    `json:"control_planes"`
	Edges         []Edge            `json:"edges"`
	Cells         []Cell            `json:"cells"`
	TLS           *TLS              `json:"tls,omitempty"` // absent: plain text
	Operators     map[string]string `json:"operators"`     // role → bearer token
	PaymentSecret string            `json:"payment_secret"`
	PaymentKeyID  string            `json:"payment_key_id"`
}

// TLS are the files by which the platform's servers are known (all of them), and what is
// shown to stores that ask their callers who they are (etcd, Redis).
type TLS struct {
	CAFile   string `json:"ca_file"`
	CertFile string `json:"cert_file"`
	KeyFile  string `json:"key_file"`
}

// Etcd is the coordination store; one id for each member.
type Etcd struct {
	Endpoints []string `json:"endpoints"`
	PIDs      []int    `json:"pids"`
}

// Kafka is the log. Kind is embedded or apache.
type Kafka struct {
	Kind    string   `json:"kind"`
	Brokers []string `json:"brokers"`
	PID     int      `json:"pid"`
}

// ControlPlane is one replica.
type ControlPlane struct {
	GRPC    string `json:"grpc"`
	Metrics string `json:"metrics"`
	Console string `json:"console,omitempty"`
	PID     int    `json:"pid"`
	Log     string `json:"log"`
}

// Edge is one HTTP entrance.
type Edge struct {
	HTTP    string `json:"http"`
	Metrics string `json:"metrics"`
	PID     int    `json:"pid"`
	Log     string `json:"log"`
}

// Cell is one cell with its stores. GRPC and Metrics are those of its first
// process that admits. Postgres is the reader's address.
type Cell struct {
	CellID            string        `json:"cell_id"`
	Region            string        `json:"region"`
	GRPC              string        `json:"grpc"`
	Metrics           string        `json:"metrics"`
	Processes         []CellProcess `json:"processes"`
	Redis             string        `json:"redis"`
	RedisPID          int           `json:"redis_pid"`
	Postgres          string        `json:"postgres"`
	PostgresSuperuser string        `json:"postgres_superuser"`
	PostgresPID       int           `json:"postgres_pid"`
	PostgresData      string        `json:"postgres_data"`
	Topic             string        `json:"topic"`
	Partitions        []int         `json:"partitions"`
	Replicas          *Replicas     `json:"replicas,omitempty"`
}

// Replicas are what a cell has besides with --replicated: a Redis replica, sentinels who decide which of
// the two is the primary, and a synchronous standby of PostgreSQL. The addresses beside it are those
// of the first primaries; the DSNs lead to whichever PostgreSQL takes writes.
type Replicas struct {
	Redis             string   `json:"redis"`
	RedisPID          int      `json:"redis_pid"`
	Sentinels         []string `json:"sentinels"`
	SentinelPIDs      []int    `json:"sentinel_pids"`
	PostgresSuperuser string   `json:"postgres_superuser"`
	PostgresPID       int      `json:"postgres_pid"`
	PostgresData      string   `json:"postgres_data"`
}

// CellProcess is one cellquotad process of a cell.
type CellProcess struct {
	Roles   []string `json:"roles"`
	GRPC    string   `json:"grpc"`
	Metrics string   `json:"metrics"`
	PID     int      `json:"pid"`
	Log     string   `json:"log"`
}

// ReadEndpoints reads an endpoints file. ErrNotRunning when there is none.
func ReadEndpoints(file string) (Endpoints, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return Endpoints{}, fmt.Errorf("%s: %w", file, ErrNotRunning)
	}
	if err != nil {
		return Endpoints{}, fmt.Errorf("endpoints file: %w", err)
	}
	var e Endpoints
	if err := json.Unmarshal(text, &e); err != nil {
		return Endpoints{}, fmt.Errorf("endpoints file %s: %w", file, err)
	}
	return e, nil
}

// Write puts e into file with mode 0600, whole or not at all.
func (e Endpoints) Write(file string) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(file), "."+endpointsName+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("endpoints file: %w", err)
	}
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Close())
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("endpoints file: %w", errors.Join(err, os.Remove(next.Name())))
	}
	return nil
}
