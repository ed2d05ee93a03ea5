package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// An object of the archive is text: one JSON object of a core.Trail per line,
// oldest first, so that it can be read in ten years without this program.

// objectPrefix begins the names of a folder's objects.
func objectPrefix(folder store.Kind) string { return folder.String() + "/" }

// objectName gives the name of an object by its first and last record: what was
// put and not indexed is never taken for another cut. Archives take no colons.
func objectName(folder store.Kind, first, last string) string {
	return objectPrefix(folder) + strings.ReplaceAll(first+"_"+last, ":", ".")
}

func encode(records []core.Trail) ([]byte, error) {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	for _, t := range records {
		if err := lines.Encode(t); err != nil {
			return nil, fmt.Errorf("audit record %s: %w", t.Name, err)
		}
	}
	return out.Bytes(), nil
}

func decode(content []byte) ([]core.Trail, error) {
	var out []core.Trail
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var t core.Trail
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("%w: audit object, line %d: %v", core.ErrBroken, len(out)+1, err) //nolint:errorlint // the text is what helps
		}
		out = append(out, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: audit object, line %d: %v", core.ErrBroken, len(out)+1, err) //nolint:errorlint // the text is what helps
	}
	return out, nil
}
