package signed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// revokedFile, in the directory of a use, lists revoked key ids, one a line. Its
// name begins with a dot, so that it is no key.
const revokedFile = ".revoked"

// maxRevoked bounds what is read of it, in bytes.
const maxRevoked = 16 << 10

// remember reads the file and settles.
func (r *Ring) remember() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noted(r.persist())
}

// persist brings ring and file together: whoever knows of a revocation tells the
// other. Processes that share the directory may overwrite each other's line once;
// the next reading writes it again. The ring's lock is held.
func (r *Ring) persist() error {
	if r.files.dir == "" {
		return nil
	}
	name := filepath.Join(r.files.dir, revokedFile)
	written, err := readRevoked(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	known := slices.Clone(written)
	for _, s := range r.states {
		if s.State == Revoked {
			known = append(known, s.KID)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, kid := range known {
		r.states = union(r.states, []Status{{KID: kid, State: Revoked}})
	}
	if len(known) == len(written) {
		return nil
	}
	if err := writeWhole(name, strings.Join(known, "\n")+"\n"); err != nil {
		return fmt.Errorf("%w: a revocation is not remembered over a restart; remove the key's file: %w", ErrKeys, err)
	}
	return nil
}

// readRevoked gives the ids in the file, sorted; none where there is no file.
func readRevoked(name string) ([]string, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxRevoked:
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxRevoked)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	kids := strings.Fields(string(text))
	if i := slices.IndexFunc(kids, func(kid string) bool { return !isKid(kid) }); i >= 0 {
		return nil, fmt.Errorf("%s: line with %q is no key id", name, kids[i])
	}
	slices.Sort(kids)
	return slices.Compact(kids), nil
}

// writeWhole puts the text there in one step.
func writeWhole(name, text string) error {
	temp, err := os.CreateTemp(filepath.Dir(name), revokedFile+"-*")
	if err != nil {
		return err
	}
	_, err = temp.WriteString(text)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // what counts is the first error
	}
	return err
}
