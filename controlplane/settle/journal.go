package settle

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

// The journal in the archive: JSON lines, a header and then one record per line,
// oldest first. docs/reference/archive.md describes it for whoever reads it without
// this program.

// journalSchema is the version of the lines.
const journalSchema = 1

// maxPart bounds the content of one object, in bytes, beyond its last record.
const maxPart = 8 << 20

type journalHeader struct {
	Schema   int            `json:"schema"`
	Kind     string         `json:"kind"` // "journal"
	Campaign ids.CampaignID `json:"campaign_id"`
	Part     int            `json:"part"`
	Records  int            `json:"records"`
}

type journalLine struct {
	CreateRevision int64           `json:"create_revision"`
	ModRevision    int64           `json:"mod_revision"`
	Record         json.RawMessage `json:"record"` // cellquota.store.v1.Record as JSON
}

var toJSON = protojson.MarshalOptions{UseProtoNames: true}

// objectName gives a name that holds its content's digest: content that differs
// never meets under one name.
func objectName(campaign ids.CampaignID, what string, content []byte) string {
	sum := sha256.Sum256(content)
	return fmt.Sprintf("campaigns/%s/%s-%s.json", campaign, what, hex.EncodeToString(sum[:6]))
}

// encodeJournal cuts records, oldest first, into the contents of objects.
func encodeJournal(campaign ids.CampaignID, records []core.Record) (parts [][]byte, err error) {
	for at := 0; at < len(records); {
		var lines bytes.Buffer
		from := at
		for ; at < len(records) && lines.Len() < maxPart; at++ {
			if err := writeRecord(&lines, records[at]); err != nil {
				return nil, err
			}
		}
		header, err := json.Marshal(journalHeader{Schema: journalSchema, Kind: "journal", Campaign: campaign, Part: len(parts) + 1, Records: at - from})
		if err != nil {
			return nil, err
		}
		parts = append(parts, append(append(header, '\n'), lines.Bytes()...))
	}
	return parts, nil
}

func writeRecord(to *bytes.Buffer, r core.Record) error {
	message, err := toJSON.Marshal(store.RecordMessage(r))
	if err != nil {
		return fmt.Errorf("record %s: %w", r.ID, err)
	}
	line, err := json.Marshal(journalLine{CreateRevision: r.CreateRevision, ModRevision: r.ModRevision, Record: message}) // which also takes out the blanks
	if err != nil {
		return fmt.Errorf("record %s: %w", r.ID, err)
	}
	to.Write(line)
	return to.WriteByte('\n')
}

// decodeJournal reads one object back. archive.ErrCorrupt names it when it is not
// what this package writes.
func decodeJournal(object core.ArchiveObject, content []byte) ([]core.Record, error) {
	bad := func(err error) error { return fmt.Errorf("%w: %s: %w", archive.ErrCorrupt, object.Name, err) }
	in := bufio.NewReader(bytes.NewReader(content))
	decoder := json.NewDecoder(in)
	var header journalHeader
	if err := decoder.Decode(&header); err != nil {
		return nil, bad(err)
	}
	if header.Kind != "journal" || header.Schema != journalSchema {
		return nil, bad(fmt.Errorf("kind %q of schema %d", header.Kind, header.Schema))
	}
	var out []core.Record
	for {
		var line journalLine
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, bad(err)
		}
		var m storev1.Record
		if err := protojson.Unmarshal(line.Record, &m); err != nil {
			return nil, bad(err)
		}
		record, err := store.FromRecordMessage(&m, line.CreateRevision, line.ModRevision)
		if err != nil {
			return nil, bad(err)
		}
		out = append(out, record)
	}
	if len(out) != header.Records {
		return nil, bad(fmt.Errorf("%d records, the header says %d", len(out), header.Records))
	}
	return out, nil
}

// History reads a settled campaign's records back from the archive, those created
// before a revision (0: all), newest first, at most bound. Any replica may ask.
type History struct{ Archive archive.Archive }

// Records implements it. The errors are the archive's.
func (h History) Records(ctx context.Context, c core.Campaign, before int64, bound int) ([]core.Record, error) {
	objects := c.Journal()
	if len(objects) == 0 {
		return nil, nil
	}
	if h.Archive == nil {
		return nil, fmt.Errorf("%w: this replica has no archive_dir", archive.ErrUnavailable)
	}
	var out []core.Record
	for i := len(objects) - 1; i >= 0 && len(out) < bound; i-- {
		content, err := h.Archive.Get(ctx, objects[i])
		if err != nil {
			return nil, err
		}
		records, err := decodeJournal(objects[i], content)
		if err != nil {
			return nil, err
		}
		for k := len(records) - 1; k >= 0 && len(out) < bound; k-- {
			if before == 0 || records[k].CreateRevision < before {
				out = append(out, records[k])
			}
		}
	}
	return out, nil
}
