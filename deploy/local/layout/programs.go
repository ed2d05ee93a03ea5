package layout

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// oldestPostgres is the first major version that the shard's schema runs on.
const oldestPostgres = 15

// Programs are what a platform runs, as paths.
type Programs struct {
	Redis      string
	Initdb     string
	Postgres   string
	Basebackup string
	Cellquotad string
	Cellctl    string
	// Java and KafkaJars run Apache Kafka; empty unless it was asked for.
	Java      string
	KafkaJars string
	// Self runs this program again, also when its file has been replaced by a
	// newer build meanwhile.
	Self string
}

// ErrMissing is a program that is not on this machine. deploy/local/setup finds
// or installs the servers, `make build` builds ours.
var ErrMissing = errors.New("missing program")

// FindPrograms looks for everything that a platform with that kind of Kafka
// needs, with replicas or without; binDir is where our own programs are, empty is
// beside this one. It names all that is missing at once.
func FindPrograms(binDir, kafka string, replicated bool) (Programs, error) {
	p := Programs{Self: "/proc/self/exe"}
	var errs []error
	var err error
	if p.Redis, err = exec.LookPath("redis-server"); err != nil {
		errs = append(errs, fmt.Errorf("%w: redis-server is not in PATH; run deploy/local/setup", ErrMissing))
	}
	bin, err := findPostgres()
	errs = append(errs, err)
	p.Initdb, p.Postgres = filepath.Join(bin, "initdb"), filepath.Join(bin, "postgres")
	if replicated {
		p.Basebackup = beside(p.Postgres, "pg_basebackup")
		if !executable(p.Basebackup) {
			errs = append(errs, fmt.Errorf("%w: pg_basebackup of PostgreSQL is not beside %s; run deploy/local/setup", ErrMissing, p.Postgres))
		}
	}
	if binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return p, err
		}
		binDir = filepath.Dir(self)
	}
	p.Cellquotad, p.Cellctl = filepath.Join(binDir, "cellquotad"), filepath.Join(binDir, "cellctl")
	for _, own := range []string{p.Cellquotad, p.Cellctl} {
		if !executable(own) {
			errs = append(errs, fmt.Errorf("%w: %s; run make build", ErrMissing, own))
		}
	}
	if kafka == ApacheKafka {
		errs = append(errs, p.findKafka(binDir))
	}
	return p, errors.Join(errs...)
}

// beside is a program in another's folder, or in that of what the other is a link to.
func beside(program, name string) string {
	if real, err := filepath.EvalSymlinks(program); err == nil && !executable(filepath.Join(filepath.Dir(program), name)) {
		program = real
	}
	return filepath.Join(filepath.Dir(program), name)
}

// kafkaJars is where deploy/local/setup puts the broker's jars, seen from the
// folder of our programs.
const kafkaJars = "../.cache/kafka/libs"

// findKafka looks for Java and the broker's jars.
func (p *Programs) findKafka(binDir string) error {
	var errs []error
	var err error
	if p.Java, err = exec.LookPath("java"); err != nil {
		errs = append(errs, fmt.Errorf("%w: java is not in PATH; run deploy/local/setup kafka", ErrMissing))
	}
	if p.KafkaJars, err = filepath.Abs(filepath.Join(binDir, kafkaJars)); err != nil {
		return err
	}
	if found, _ := filepath.Glob(filepath.Join(p.KafkaJars, "kafka_*.jar")); len(found) == 0 { // the pattern is well formed
		errs = append(errs, fmt.Errorf("%w: Apache Kafka's jars are not in %s; run deploy/local/setup kafka", ErrMissing, p.KafkaJars))
	}
	return errors.Join(errs...)
}

// findPostgres gives the folder with the highest version that is new enough.
// deploy/local/setup looks in the same places.
func findPostgres() (string, error) {
	var dirs []string
	if inPath, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(inPath))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		dirs = append(dirs, found...)
	}
	best, where := 0, ""
	for _, dir := range dirs {
		if !executable(filepath.Join(dir, "postgres")) || !executable(filepath.Join(dir, "initdb")) {
			continue
		}
		if v := postgresMajor(filepath.Join(dir, "postgres")); v > best {
			best, where = v, dir
		}
	}
	if best < oldestPostgres {
		return "", fmt.Errorf("%w: PostgreSQL %d or newer (initdb, postgres); run deploy/local/setup", ErrMissing, oldestPostgres)
	}
	return where, nil
}

var firstNumber = regexp.MustCompile(`[0-9]+`)

// postgresMajor asks a server for its version; 0 when it does not say.
func postgresMajor(path string) int {
	out, err := exec.Command(path, "--version").Output() // answers at once
	if err != nil {
		return 0
	}
	v, err := strconv.Atoi(firstNumber.FindString(string(out)))
	if err != nil {
		return 0
	}
	return v
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
