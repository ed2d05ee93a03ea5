package demo

import (
	"fmt"
	"strconv"
	"time"
)

// Settings of a demo; the DEMO_… variables of `make demo`.
type Settings struct {
	Users int    `json:"users"` // DEMO_USERS, 100 to 5,000,000
	Stock int    `json:"stock"` // DEMO_STOCK, 100 to 1,000,000
	Cells int    `json:"cells"` // DEMO_CELLS, 2 to 16
	Kafka string `json:"kafka"` // DEMO_KAFKA
	// Keep leaves the platform running (DEMO_KEEP=1).
	Keep bool `json:"keep"`
	// ReportFile gets the report as JSON (DEMO_REPORT); "" for none.
	ReportFile string `json:"-"`
	// Seed decides what every customer does.
	Seed uint64 `json:"seed"`
	// Pace is how long customers keep coming.
	Pace time.Duration `json:"pace_ns"`
}

// Bounds and defaults.
const (
	defaultUsers = 100_000
	defaultStock = 10_000
	defaultCells = 4
	defaultPace  = 110 * time.Second
	shortestPace = 25 * time.Second
	defaultSeed  = 20261111
)

// pace keeps the default's customers per second for more of them, and leaves a small demo the time that
// its story needs: a cell has to die, be noticed, be fenced and come back while customers come.
func pace(users int) time.Duration {
	return max(shortestPace, time.Duration(float64(defaultPace)*float64(users)/defaultUsers))
}

// FromEnvironment reads the DEMO_… variables. ErrUsage names the variable and its rule.
func FromEnvironment(env func(string) string) (Settings, error) {
	s := Settings{Kafka: "embedded", ReportFile: env("DEMO_REPORT"), Seed: defaultSeed}
	var err error
	if s.Users, err = count(env, "DEMO_USERS", defaultUsers, 100, 5_000_000); err != nil {
		return s, err
	}
	s.Pace = pace(s.Users)
	if s.Stock, err = count(env, "DEMO_STOCK", defaultStock, 100, 1_000_000); err != nil {
		return s, err
	}
	if s.Cells, err = count(env, "DEMO_CELLS", defaultCells, 2, 16); err != nil {
		return s, err
	}
	switch k := env("DEMO_KAFKA"); k {
	case "":
	case "embedded", "apache":
		s.Kafka = k
	default:
		return s, fmt.Errorf("%w: DEMO_KAFKA=%q: must be embedded or apache", ErrUsage, k)
	}
	switch k := env("DEMO_KEEP"); k {
	case "", "0":
	case "1":
		s.Keep = true
	default:
		return s, fmt.Errorf("%w: DEMO_KEEP=%q: must be 0 or 1", ErrUsage, k)
	}
	return s, nil
}

func count(env func(string) string, name string, otherwise, least, most int) (int, error) {
	text := env(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%w: %s=%q: must be a whole number from %d to %d", ErrUsage, name, text, least, most)
	}
	return n, nil
}

// demand is how many units this many customers can ask for.
func (s Settings) demand() int { return min(s.Stock, s.Users) }
