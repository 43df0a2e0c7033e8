package mcap

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// excerpt returns the first messages of each topic of a recording without compression and
// checksums, so that mutations reach the decoders.
func excerpt(f *testing.F, path string, each int) []byte {
	ctx := context.Background()
	s := openFile(f, path, StorageOptions{})
	var out bytes.Buffer
	w, err := foxglove.NewWriter(&out, &foxglove.WriterOptions{Chunked: true, ChunkSize: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	must(w.WriteHeader(&foxglove.Header{Profile: "ros2"}))
	for k, info := range s.Topics() {
		id := uint16(k + 1)
		must(
			w.WriteSchema(
				&foxglove.Schema{
					ID:       id,
					Name:     info.Type,
					Encoding: info.SchemaEncoding,
					Data:     []byte(info.SchemaText),
				},
			),
		)
		must(
			w.WriteChannel(
				&foxglove.Channel{
					ID:              id,
					SchemaID:        id,
					Topic:           info.Name,
					MessageEncoding: info.Encoding,
					Metadata:        info.Metadata,
				},
			),
		)
		must(
			s.Messages(ctx, k, 0, min(each, int(info.Messages)), func(_ int, m *bag.Message) error {
				if len(m.Data) > 20000 {
					return nil
				}
				return w.WriteMessage(
					&foxglove.Message{
						ChannelID:   id,
						Sequence:    m.Sequence,
						LogTime:     uint64(m.Log),
						PublishTime: uint64(m.Publish),
						Data:        m.Data,
					},
				)
			}),
		)
	}
	must(w.Close())
	return out.Bytes()
}

// FuzzDataset checks that a dataset of any file returns its features, timestamps and rows, or a
// typed error, with memory in proportion to the file.
func FuzzDataset(f *testing.F) {
	f.Add(numbered(f, row(0, 20, 4), row(0, 20)))
	if _, err := os.Stat(os.Getenv("ROBOCACHE_TESTDATA")); err == nil {
		f.Add(excerpt(f, filepath.Join(realdata.Path(f, "mcap_robot"), "recording_zstd.mcap"), 3))
	}
	ctx := context.Background()
	mem := storetest.NewMem("fuzz-mcap-dataset")
	// Every error must be typed.
	fine := func(t *testing.T, what string, err error) bool {
		t.Helper()
		hostile.Typed(t, robocache.At(err, robocache.Where{"call": what}))
		return err == nil
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		before := hostile.Allocated()
		mem.Put("x.mcap", b)
		for _, scan := range []string{"all", "sample"} {
			ds, err := OpenStore(
				ctx,
				mem,
				"x.mcap",
				robocache.OpenOptions{
					MemoryBudget: 16 << 20,
					Options:      map[string]string{"scan": scan},
				},
			)
			if !fine(t, "open", err) {
				continue
			}
			_, err = ds.Episode(ctx, 0)
			fine(t, "episode", err)
			for _, ft := range ds.Info().Features[:min(40, len(ds.Info().Features))] {
				at, err := ds.Times(ctx, 0, ft.Key)
				if !fine(t, "times", err) {
					continue
				}
				rows := allRows(0, min(len(at), 50))
				switch {
				case ft.Kind == robocache.KindImage:
					fine(
						t,
						"frames",
						ds.Frames(ctx, ft.Key, rows, make([]robocache.FrameRef, len(rows))),
					)
				case ft.Kind == robocache.KindText || ft.Kind == robocache.KindEvent:
					_, err := ds.Text(ctx, ft.Key, rows)
					fine(t, "text", err)
				case ft.Ragged():
					_, _, err := ds.GatherRagged(ctx, ft.Key, rows)
					fine(t, "ragged", err)
				case ft.RowBytes() > 0 && ft.RowBytes() < 1<<20:
					fine(
						t,
						"gather",
						ds.Gather(ctx, ft.Key, rows, make([]byte, len(rows)*ft.RowBytes())),
					)
					fine(t, "valid", ds.Valid(ctx, ft.Key, rows, make([]uint8, len(rows))))
				}
			}
			_, err = ds.Diagnose(ctx, robocache.DiagnoseOptions{})
			fine(t, "doctor", err)
			_ = ds.Close() // not the store
		}
		if got := hostile.Allocated() - before; got > uint64(256<<20+2000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}
