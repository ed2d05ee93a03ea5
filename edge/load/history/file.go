package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
)

// maxLine bounds one record; a longer line is a damaged file.
const maxLine = 1 << 20

// Writer appends records; safe for concurrent use. The first error sticks and is returned by Close:
// a history that lost a line must not pass for a whole one.
type Writer struct {
	mu    sync.Mutex
	buf   *bufio.Writer
	out   io.WriteCloser
	err   error
	count int64
}

// NewWriter writes to out and owns it from now on.
func NewWriter(out io.WriteCloser) *Writer {
	return &Writer{buf: bufio.NewWriterSize(out, 1<<20), out: out}
}

// Add appends one record.
func (w *Writer) Add(r Record) {
	line, err := json.Marshal(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if err == nil {
		_, err = w.buf.Write(append(line, '\n'))
	}
	if err != nil {
		w.err = fmt.Errorf("history: write record %d: %w", w.count+1, err)
		return
	}
	w.count++
}

// Count of records written so far.
func (w *Writer) Count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Close flushes and closes; it returns the first error of the writer's life.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.buf.Flush(); err != nil && w.err == nil {
		w.err = fmt.Errorf("history: flush: %w", err)
	}
	if err := w.out.Close(); err != nil && w.err == nil {
		w.err = fmt.Errorf("history: close: %w", err)
	}
	return w.err
}

// Read yields every record of in, then at most one error. A last line that is cut short (the
// generator was killed) is an error too: what it promised is not known.
func Read(in io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 64<<10), maxLine)
		n := 0
		for lines.Scan() {
			n++
			var r Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				yield(Record{}, fmt.Errorf("history: line %d: %w", n, err))
				return
			}
			if r.Op == "" {
				yield(Record{}, fmt.Errorf("history: line %d: %w", n, errNoOp))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Record{}, fmt.Errorf("history: line %d: %w", n+1, err))
		}
	}
}

var errNoOp = errors.New(`no "op"`)
