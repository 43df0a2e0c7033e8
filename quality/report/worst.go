package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"image"
	"image/jpeg"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/video"
)

const (
	thumbCount = 4   // images of an episode and camera
	thumbWidth = 120 // pixels
	thumbStrip = 2   // cameras that are shown
)

// writeWorst writes the episodes with the most findings, with images.
func writeWorst(
	b *bytes.Buffer,
	ctx context.Context,
	ds robocache.Dataset,
	t *quality.Table,
	byRow map[int][]robocache.Finding,
) error {
	rows := slices.SortedFunc(maps.Keys(byRow), func(x, y int) int {
		return cmp.Or(len(byRow[y])-len(byRow[x]), x-y)
	})
	if len(rows) == 0 {
		return nil
	}
	b.WriteString(`<h2>Episodes with the most findings</h2><div class="grid">`)
	for _, row := range rows[:min(len(rows), worstCount)] {
		fmt.Fprintf(b, `<div class="card"><h3>Episode %d</h3><small>%s · %d rows</small>`,
			t.Episodes[row], html.EscapeString(cmp.Or(t.Tasks[row], "no task")), t.Lengths[row])
		if err := writeThumbs(b, ctx, ds, t.Episodes[row]); err != nil {
			return err
		}
		b.WriteString("<ul>")
		for i, f := range byRow[row] {
			if i == findingsText {
				fmt.Fprintf(b, "<li>%d more", len(byRow[row])-i)
				break
			}
			fmt.Fprintf(b, "<li>%s", html.EscapeString(shortMessage(f.Message)))
		}
		b.WriteString("</ul></div>")
	}
	b.WriteString("</div>")
	return nil
}

// shortMessage returns a message about a metric without the description of its group.
func shortMessage(message string) string {
	value, rest, isMetric := strings.Cut(message, "; of the ")
	_, usual, hasUsual := strings.Cut(rest, " usual is ")
	if !isMetric || !hasUsual {
		return message
	}
	return value + "; usual is " + usual
}

// writeThumbs writes evenly spaced images of the first cameras. Images that cannot be read are left
// out: they are findings.
func writeThumbs(
	b *bytes.Buffer, ctx context.Context, ds robocache.Dataset, index int64,
) error {
	if ds == nil {
		return nil
	}
	e, err := ds.Info().EpisodePosition(index)
	if err != nil {
		return err
	}
	shown := 0
	features := ds.Info().Features
	for i := range features {
		f := &features[i]
		isCamera := f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage
		if !isCamera || shown == thumbStrip {
			continue
		}
		shown++
		images, err := thumbnails(ctx, ds, f, e)
		if ctx.Err() != nil || robocache.IsFatal(err) {
			return err
		}
		b.WriteString(`<div class="strip">`)
		for _, data := range images {
			fmt.Fprintf(b, `<img alt="" width="%d" src="data:image/jpeg;base64,%s">`,
				thumbWidth, base64.StdEncoding.EncodeToString(data))
		}
		b.WriteString("</div>")
	}
	return nil
}

// thumbnails returns JPEG images of a camera.
func thumbnails(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, e int,
) (out [][]byte, err error) {
	n, err := robocache.RowsIn(ctx, ds, e, f)
	if err != nil || n == 0 {
		return nil, err
	}
	count := min(thumbCount, n)
	rows, refs := make([]robocache.Row, count), make([]robocache.FrameRef, count)
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i * (n - 1) / max(count-1, 1)}
	}
	if err := ds.Frames(ctx, f.Key, rows, refs); err != nil {
		return nil, err
	}
	painter := &inspect.Painter{}
	err = video.EachFrame(ctx, video.LibraryOf(ds), refs, video.Each{},
		func(at []int, pic video.Frame) error {
			img, err := painter.Paint(f, &refs[at[0]], pic, thumbWidth)
			if err != nil || img == nil {
				return err
			}
			data, err := encodeThumb(img)
			for range at {
				out = append(out, data)
			}
			return err
		})
	return out, err
}

func encodeThumb(img image.Image) ([]byte, error) {
	var b bytes.Buffer
	err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 70})
	return b.Bytes(), err
}
