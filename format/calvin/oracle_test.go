package calvin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func open(t testing.TB, dir string, opt robocache.OpenOptions) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

type oracleFile struct {
	Steps map[string]map[string]struct {
		Shape  []int
		DType  string
		SHA256 string
	}
	Language struct {
		Ann  []string   `json:"language.ann"`
		Task []string   `json:"language.task"`
		Indx [][2]int64 `json:"info.indx"`
		Emb  struct{ SHA256 string }
	} `json:"auto_lang_ann.npy"`
}

// TestOracle compares every array of every frame with NumPy, bit for bit.
func TestOracle(t *testing.T) {
	dir := realdata.Path(t, "calvin_like")
	b, err := os.ReadFile(filepath.Join(dir, "oracle/steps.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o oracleFile
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir, robocache.OpenOptions{})
	if d.Info().Episodes != 2 || d.Len(0) != 26 || d.Len(1) != 28 ||
		d.Info().Splits["training"] != "0:2" {
		t.Fatalf("%+v", d.Info())
	}
	checked := 0
	for e := range d.episodes {
		for row := range d.Len(e) {
			arrays := o.Steps[fmt.Sprintf("episode_%07d.npz", d.episodes[e].first+int64(row))]
			for name, want := range arrays {
				f := d.Info().Feature(streamKey(name))
				if f == nil {
					t.Fatal("no stream for", name)
				}
				at := []robocache.Row{{Episode: e, Index: row}}
				var got []byte
				if f.Kind == robocache.KindImage {
					out := make([]robocache.FrameRef, 1)
					if err := d.Frames(t.Context(), f.Key, at, out); err != nil {
						t.Fatal(err)
					}
					got = out[0].Raw.Pix
				} else {
					got = make([]byte, f.RowBytes())
					if err := d.Gather(t.Context(), f.Key, at, got); err != nil {
						t.Fatal(err)
					}
				}
				if sum(got) != want.SHA256 {
					t.Errorf("episode %d row %d %s differs", e, row, name)
				}
				checked++
			}
		}
	}
	if checked != 54*8 {
		t.Errorf("%d arrays checked", checked)
	}
	if sum(d.language.embeddings["training"]) != o.Language.Emb.SHA256 &&
		o.Language.Emb.SHA256 != "" {
		t.Error("embeddings differ")
	}
	for i, n := range d.language.notes {
		if n.text != o.Language.Ann[i] || n.task != o.Language.Task[i] ||
			n.first != o.Language.Indx[i][0] ||
			n.last != o.Language.Indx[i][1] {
			t.Errorf("annotation %d: %+v", i, n)
		}
	}
	if found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true}); err != nil ||
		len(found) != 0 {
		t.Error(found, err)
	}
}
