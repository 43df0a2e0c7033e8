package convert_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// shifted is a dataset whose episodes start some rows later, in the middle of a GOP.
type shifted struct {
	robocache.Dataset
	by int
}

func (s shifted) Len(e int) int { return s.Dataset.Len(e) - s.by }
func (s shifted) move(rows []robocache.Row) []robocache.Row {
	out := make([]robocache.Row, len(rows))
	for i, r := range rows {
		out[i] = robocache.Row{Episode: r.Episode, Index: r.Index + s.by}
	}
	return out
}

func (s shifted) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	return s.Dataset.Gather(ctx, key, s.move(rows), dst)
}

func (s shifted) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	return s.Dataset.Text(ctx, key, s.move(rows))
}

func (s shifted) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	return s.Dataset.Frames(ctx, key, s.move(rows), out)
}
func (s shifted) Video() *video.Library { return s.Dataset.(video.Source).Video() }

// C2: images that cannot be copied are encoded one by one, or rejected if only copying is allowed.
// A whole episode in the same run is copied.
func TestCutInsideGroup(t *testing.T) {
	if err := video.CanEncode(t.Context(), video.EncodeConfig{
		Codec: video.H264, Width: 256,
		Height: 256, Rate: robocache.Rate{Num: 20, Den: 1},
	}); err != nil {
		t.Skip(err)
	}
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	const by = 320
	src := shifted{open(t, data(t, "gr00t_picknplace_v20")), by}
	const key = "observation.images.ego_view"
	opt := Options{Episodes: []int{0}, CopyOnly: true}
	if _, err := ToLeRobot(t.Context(), src, filepath.Join(t.TempDir(), "x"), opt); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Fatalf("copy only: %v", err)
	}
	opt.CopyOnly = false
	opt.Encode.Codec = "h264"
	dst := filepath.Join(t.TempDir(), "out")
	rep, err := ToLeRobot(t.Context(), src, dst, opt)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Encoded != 1 || !strings.HasPrefix(rep.Episodes[0].Video[key], "encoded: ") {
		t.Errorf("%+v", rep.Episodes)
	}
	out := open(t, dst)
	pool := video.NewPool(64 << 20)
	defer pool.Close()
	for _, k := range []int{0, 1, 40, src.Len(0) - 1} {
		got := frame(t, out, pool, key, robocache.Row{Index: k})
		right := rms(got, frame(t, src, pool, key, robocache.Row{Index: k}))
		other := rms(got, frame(t, src, pool, key, robocache.Row{Index: (k + 30) % src.Len(0)}))
		if right > 6 || right >= other {
			t.Errorf("row %d: %.1f levels from its own image, %.1f from another", k, right, other)
		}
	}
}
