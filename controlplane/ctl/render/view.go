package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/proto"
)

// Format is a shape of an answer.
type Format string

// The shapes.
const (
	FormatTable Format = "table"
	FormatWide  Format = "wide"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
	FormatName  Format = "name"
	FormatCSV   Format = "csv"
)

// Formats lists them for help texts and completion.
var Formats = []string{string(FormatTable), string(FormatWide), string(FormatJSON), string(FormatYAML), string(FormatName), string(FormatCSV)}

// ErrFormat is an output format that does not exist.
var ErrFormat = errors.New("unknown output format")

// ParseFormat reads -o.
func ParseFormat(s string) (Format, error) {
	for _, f := range Formats {
		if s == f {
			return Format(f), nil
		}
	}
	return "", fmt.Errorf("%w: -o %q: must be one of %s", ErrFormat, s, strings.Join(Formats, ", "))
}

// View is one answer in all its shapes.
type View struct {
	// Message is what json and yaml show; Value instead of it where the answer is no message.
	Message proto.Message
	Value   any
	// Lines come before the tables, for people only.
	Lines []string
	// Tables: the last one is the main one, which csv and name show; its first column is the name.
	Tables []Table
}

// Table is columns and rows.
type Table struct {
	// Title stands above it when there are several.
	Title   string
	Columns []Column
	Rows    [][]string
}

// Column of a table. Wide ones are shown by wide and csv only.
type Column struct {
	Name string
	Wide bool
	// Number aligns to the right.
	Number bool
}

// Columns makes columns of names: a leading + is wide, a leading # a number.
func Columns(names ...string) []Column {
	out := make([]Column, len(names))
	for i, n := range names {
		c := &out[i]
		c.Wide = strings.HasPrefix(n, "+")
		n = strings.TrimPrefix(n, "+")
		c.Number = strings.HasPrefix(n, "#")
		c.Name = strings.TrimPrefix(n, "#")
	}
	return out
}

// Write shows v in one shape.
func Write(w io.Writer, f Format, v View) error {
	var out bytes.Buffer
	if err := v.write(&out, f); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (v View) write(out *bytes.Buffer, f Format) error {
	switch f {
	case FormatJSON, FormatYAML:
		text, err := v.json()
		if err == nil && f == FormatYAML {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			return fmt.Errorf("render: %w", err)
		}
		out.Write(text)
	case FormatName:
		for _, row := range v.main().Rows {
			fmt.Fprintln(out, row[0])
		}
	case FormatCSV:
		return v.main().csv(out)
	default:
		v.people(out, f == FormatWide)
	}
	return nil
}

func (v View) json() ([]byte, error) {
	if v.Message != nil {
		return JSON(v.Message), nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v.Value)
	return out.Bytes(), err
}

func (v View) main() Table {
	if len(v.Tables) == 0 {
		return Table{}
	}
	return v.Tables[len(v.Tables)-1]
}

func (v View) people(out *bytes.Buffer, wide bool) {
	for _, line := range v.Lines {
		fmt.Fprintln(out, line)
	}
	for i, t := range v.Tables {
		if i > 0 || len(v.Lines) > 0 {
			fmt.Fprintln(out)
		}
		t.Write(out, wide)
	}
}

// Write draws the table for people; an empty cell is "-".
func (t Table) Write(out *bytes.Buffer, wide bool) {
	if t.Title != "" {
		fmt.Fprintln(out, t.Title)
	}
	width := make([]int, len(t.Columns))
	lines := make([][]string, 0, len(t.Rows)+1)
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = c.Name
	}
	for _, row := range append([][]string{head}, t.Rows...) {
		line := make([]string, len(t.Columns))
		for i := range t.Columns {
			line[i] = oneLine(row[i])
			width[i] = max(width[i], utf8.RuneCountInString(line[i]))
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		t.line(out, line, width, wide)
	}
}

func (t Table) line(out *bytes.Buffer, line []string, width []int, wide bool) {
	var b strings.Builder
	for i, c := range t.Columns {
		if c.Wide && !wide {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(line[i]))
		if c.Number {
			b.WriteString(pad + line[i])
		} else {
			b.WriteString(line[i] + pad)
		}
	}
	fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
}

func oneLine(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Join(strings.Fields(s), " ")
}

func (t Table) csv(out *bytes.Buffer) error {
	w := csv.NewWriter(out)
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = strings.ReplaceAll(strings.ToLower(c.Name), " ", "_")
	}
	if err := w.Write(head); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if err := w.WriteAll(t.Rows); err != nil { // it flushes
		return fmt.Errorf("render: %w", err)
	}
	return nil
}
