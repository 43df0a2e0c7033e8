package quality

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Unfinished work is saved after partRows rows, or in maxParts parts if there are more rows.
const (
	partRows = 256
	maxParts = 256
)

// settings identifies the work: the dataset, the metrics, the frames and the scale. Parts of other
// work are not used.
func (m *measurement) settings() (string, error) {
	h := sha256.New()
	encoded, err := json.Marshal(struct {
		Fingerprint string
		State       string
		Frames      Frames
		Metrics     []Metric
		Scale       *Scale
		IsShard     bool
	}{m.table.Fingerprint, m.table.State, m.opt.Frames, Metrics(), m.scale, m.opt.IsShard})
	if err != nil {
		return "", err
	}
	_, _ = h.Write(encoded)
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// resumeParts reads the rows that an interrupted run saved in the folder opt.Parts. An episode that
// could not be measured is measured again: its reason may be gone, such as a small budget. Files of
// other work, and damaged ones, are ignored, and are removed at the end.
func (m *measurement) resumeParts(ctx context.Context) error {
	if m.opt.Parts == "" {
		return nil
	}
	settings, err := m.settings()
	if err != nil {
		return err
	}
	dst, err := store.OpenWritable(m.opt.Parts)
	if err != nil {
		return err
	}
	defer store.Close(dst)
	entries, err := dst.List(ctx, "")
	if err != nil && !errors.Is(err, robocache.ErrNotFound) {
		return err
	}
	for _, entry := range entries {
		if _, err := fmt.Sscanf(entry.Name, "part-%d.parquet", &m.parts); err != nil {
			continue
		}
		m.parts++
		part, used, err := readTable(ctx, dst, entry.Name)
		if err != nil || used != settings || part.SketchWidth != m.table.SketchWidth ||
			part.HashWidth != m.table.HashWidth {
			continue
		}
		for i, e := range m.positions {
			k := part.Row(m.ds.Info().EpisodeIndex(e))
			if k >= 0 && !m.isDone[i] && part.Errors[k] == "" {
				m.table.copyRow(i, part, k)
				m.isDone[i] = true
			}
		}
	}
	return ctx.Err()
}

// savePart writes the rows that are measured and in no part.
func (m *measurement) savePart(ctx context.Context) error {
	m.mu.Lock()
	rows, number := m.unsaved, m.parts
	m.unsaved = nil
	m.parts++
	m.mu.Unlock()
	if m.opt.Parts == "" || len(rows) == 0 {
		return nil
	}
	settings, err := m.settings()
	if err != nil {
		return err
	}
	dst, err := store.OpenWritable(m.opt.Parts)
	if err != nil {
		return err
	}
	defer store.Close(dst)
	part := m.table.selectRows(sortedRows(rows))
	return writeTable(ctx, dst, fmt.Sprintf("part-%06d.parquet", number),
		func(w io.Writer) error { return part.encodePart(w, settings) })
}

// removeParts removes the saved rows, as the table is complete. Errors are ignored: the files are
// removed by the next run.
func (m *measurement) removeParts(ctx context.Context) {
	if m.opt.Parts == "" {
		return
	}
	dst, err := store.OpenWritable(m.opt.Parts)
	if err != nil {
		return
	}
	defer store.Close(dst)
	entries, _ := dst.List(ctx, "")
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name, "part-") {
			_ = dst.Remove(ctx, entry.Name)
		}
	}
	removeFolder(m.opt.Parts)
}

// sortedRows returns the rows in ascending order.
func sortedRows(rows []int) []int {
	slices.Sort(rows)
	return rows
}

// removeFolder removes an empty local folder.
func removeFolder(uri string) {
	if dir, local := store.LocalPath(uri); local {
		_ = os.Remove(dir)
	}
}
