package admission

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrUnavailable: Redis did not answer, or answered that it cannot serve now.
	// What was asked may have happened; asking again under the same ids is safe.
	ErrUnavailable = errors.New("admission: redis is unavailable")
	// ErrRunChanged: another Redis process answers than the one acknowledged; the
	// mirror must be rebuilt before anything is admitted.
	ErrRunChanged = errors.New("admission: redis was restarted or failed over")
	// ErrNotMaster: the server that answered is a replica.
	ErrNotMaster = errors.New("admission: redis answers as a replica")
	// ErrUnfit: the server must not hold a mirror: too old, or it may evict keys.
	// Only its operator can cure that.
	ErrUnfit = errors.New("admission: redis is unfit")
	// ErrLibrary: a library of our name but of another text is loaded.
	ErrLibrary = errors.New("admission: another cellquota_v2 library is loaded")
	// ErrBroken: a script failed or answered what it never may; the mirror or the
	// program is damaged.
	ErrBroken = errors.New("admission: broken script or mirror")
	// ErrInvalidAsk: the caller broke a bound that it must have checked.
	ErrInvalidAsk = errors.New("admission: invalid ask")
)

// unableWords are the first words of Redis errors that mean "not now".
var unableWords = map[string]bool{
	"OOM": true, "MISCONF": true, "READONLY": true, "LOADING": true, "MASTERDOWN": true, "CLUSTERDOWN": true,
	"NOREPLICAS": true, "BUSY": true, "TRYAGAIN": true, "MOVED": true, "ASK": true, "NOAUTH": true, "WRONGPASS": true, "NOPERM": true,
}

// translate turns a driver's error into one of ours; nil stays nil.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case isOurs(err):
		return err
	}
	var answer redis.Error
	if !errors.As(err, &answer) || isNil(err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	if unableWords[word] || isFunctionLost(err) { // flushed again and again: not now
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

func isOurs(err error) bool {
	for _, ours := range []error{ErrUnavailable, ErrRunChanged, ErrNotMaster, ErrUnfit, ErrLibrary, ErrBroken, ErrInvalidAsk} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// isAnswer reports whether err is Redis's own answer and not the connection's end.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// isFunctionLost reports whether Redis no longer has our library (K61).
func isFunctionLost(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.Contains(answer.Error(), "Function not found")
}

// isNil reports that a key or field is not there.
func isNil(err error) bool { return errors.Is(err, redis.Nil) }
