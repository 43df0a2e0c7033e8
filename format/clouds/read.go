package clouds

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Len returns the number of scans of an episode. It is 0 if the episode does not exist.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= len(d.episodes) {
		return 0
	}
	return len(d.episodes[episode].scans)
}

func (d *Dataset) checkRows(rows []robocache.Row) error {
	for _, r := range rows {
		if err := cmp.Or(op.Episode(len(d.episodes), r.Episode),
			op.Row(d.About, d.Len(r.Episode), r)); err != nil {
			return err
		}
	}
	return nil
}

// Episode returns the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, episode int) (robocache.Episode, error) {
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return robocache.Episode{}, err
	}
	return robocache.Episode{
		Position: episode,
		Index:    int64(episode),
		Length:   d.Len(episode),
	}, ctx.Err()
}

// Times returns the timestamps of an episode's scans.
func (d *Dataset) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return nil, err
	}
	if key != "" && key != keyPoints {
		return nil, op.NoStream(key)
	}
	e := &d.episodes[episode]
	if e.timestamps == nil && d.rate.Zero() {
		return nil, d.About.NoClock(
			"clouds",
			robocache.Where{"episode": d.About.EpisodeIndex(episode)},
			"there is no timestamps.txt or times.txt next to the scans",
		)
	}
	if e.timestamps == nil {
		return reader.Grid(d.rate, len(e.scans)), ctx.Err()
	}
	return slices.Clone(e.timestamps), ctx.Err()
}

// Gather returns an error, because scans have different numbers of points.
func (d *Dataset) Gather(_ context.Context, key string, _ []robocache.Row, _ []byte) error {
	return d.wrongKind(key, "numeric", "GatherRagged reads it")
}

// Frames returns an error, because there are no images.
func (d *Dataset) Frames(
	_ context.Context,
	key string,
	_ []robocache.Row,
	_ []robocache.FrameRef,
) error {
	return d.wrongKind(key, "image", "")
}

func (d *Dataset) wrongKind(key, want, hint string) error {
	if key != keyPoints {
		return op.NoStream(key)
	}
	return robocache.Misuse("clouds", robocache.Where{"stream": key}, "").
		Expected("a stream of kind "+want, string(robocache.KindPointCloud)).WithHint("%s", hint)
}

// Text returns the task, which is empty.
func (d *Dataset) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	if key != "task" {
		return nil, d.wrongKind(key, "text", "")
	}
	return make([]string, len(rows)), cmp.Or(d.checkRows(rows), ctx.Err())
}

// GatherRagged returns the points of scans, one scan after the other (clouds.P2).
func (d *Dataset) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	defer crash.Recover("clouds gather", &err)
	if key != keyPoints {
		return nil, nil, op.NoStream(key)
	}
	if err := d.checkRows(rows); err != nil {
		return data, counts, err
	}
	point := int64(d.width * d.dtype.Size())
	// offset of each row's points, with space for the whole file including headers
	at := make([]int64, len(rows)+1)
	for i, r := range rows {
		if err := d.withScan(d.checkScanSize(d.scanOf(r), point, at[i]), r); err != nil {
			return data, counts, err
		}
		at[i+1] = at[i] + d.scanOf(r).size
	}
	data, counts = make([]byte, at[len(rows)]), make([]int, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, r := range rows {
		g.Go(func() (err error) {
			defer crash.Recover("clouds read", &err)
			return d.withScan(func() error {
				oneCounts, err := d.readScan(ctx, d.scanOf(r), data[at[i]:at[i+1]])
				if err != nil {
					return err
				}
				counts[i] = oneCounts
				return nil
			}(), r)
		})
	}
	if err := g.Wait(); err != nil {
		return data, counts, err
	}
	var end int64
	for i, n := range counts {
		size := int64(n) * point
		if at[i] != end {
			copy(data[end:], data[at[i]:at[i]+size])
		}
		end += size
	}
	return data[:end:end], counts, nil
}

// checkScanSize checks that a scan consists of whole points. It also checks that the scan and the
// bytes before it fit into the budget.
func (d *Dataset) checkScanSize(s scan, point, before int64) error {
	switch {
	case s.err != nil:
		return s.err
	case d.src.name != "clouds" && s.size%point != 0:
		return robocache.Malformed(
			"clouds",
			nil,
			"%d bytes are not a multiple of the point size %d: the remainder is %d bytes",
			s.size,
			point,
			s.size%point,
		).
			WithHint("the file is cut, or has other columns: option columns")
	case s.size > d.budget || before+s.size > d.budget:
		return robocache.ResourceLimit("clouds", nil, "the scans asked for together").
			Expected(
				fmt.Sprintf("at most %d bytes", d.budget),
				fmt.Sprintf("%d or more", before+s.size),
			).
			WithHint("ask for fewer, or raise the memory budget")
	}
	return nil
}

func (d *Dataset) scanOf(r robocache.Row) scan { return d.episodes[r.Episode].scans[r.Index] }

func (d *Dataset) withScan(err error, r robocache.Row) error {
	return robocache.At(
		err,
		robocache.Where{"file": d.scanOf(r).name, "episode": r.Episode, "row": r.Index},
	)
}

// readScan reads the points of a scan to the beginning of dst, whose length is the file size, and
// returns their number.
func (d *Dataset) readScan(ctx context.Context, s scan, dst []byte) (int, error) {
	r, err := d.Bytes.Open(ctx, s.name)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if r.Size() != s.size {
		return 0, bad("the file has %d bytes, it had %d when it was listed", r.Size(), s.size)
	}
	if err := r.ReadAt(ctx, dst, 0); err != nil {
		return 0, err
	}
	point := d.width * d.dtype.Size()
	b := dst
	if d.src.name == "clouds" {
		a, err := npy.Decode(dst)
		if err != nil {
			return 0, err
		}
		if len(a.Shape) != 2 || a.Shape[1] != d.width || a.Type.DType() != d.dtype {
			return 0, robocache.Malformed("clouds", nil, "the array is not like the first scan's").
				Expected(
					fmt.Sprintf("%s [points, %d]", d.dtype, d.width),
					fmt.Sprintf("%s %v", a.Type, a.Shape),
				)
		}
		b = a.Data
	}
	if d.keepNotFinite {
		return copy(dst, b) / point, nil
	}
	return copyFinite(dst, b, point, d.dtype), nil
}

// copyFinite copies the points whose coordinates are finite, and returns their number. dst may be
// src, or contain it.
func copyFinite(dst, src []byte, point int, t robocache.DType) int {
	n, size := 0, t.Size()
	from := 0 // first point that is not copied yet
	flush := func(to int) {
		if n*point != from*point || &dst[0] != &src[0] {
			copy(dst[n*point:], src[from*point:to*point])
		}
		n += to - from
	}
	total := len(src) / point
	for i := range total {
		p := src[i*point:]
		if notFinite(p, t) || notFinite(p[size:], t) || notFinite(p[2*size:], t) {
			flush(i)
			from = i + 1
		}
	}
	if total > 0 {
		flush(total)
	}
	return n
}

// notFinite reports whether a number is NaN or infinite: all bits of its exponent are set.
func notFinite(b []byte, t robocache.DType) bool {
	switch t {
	case robocache.Float32:
		return binary.LittleEndian.Uint32(b)&0x7f800000 == 0x7f800000
	case robocache.Float64:
		return binary.LittleEndian.Uint64(b)&0x7ff0000000000000 == 0x7ff0000000000000
	}
	return binary.LittleEndian.Uint16(b)&0x7c00 == 0x7c00
}

// Diagnose reads every scan. It reports wrong sizes, points that are not finite, empty clouds, gaps
// and repeated timestamps.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover("clouds diagnose", &err)
	out = append(out, d.About.Findings...)
	eps := reader.Episodes(opt.Episodes, len(d.episodes))
	whole := *d
	whole.keepNotFinite = true
	var dropped, empty int64
	var firstDropped robocache.Where // the first scan with a dropped point
	for i, e := range eps {
		if err := op.Episode(len(d.episodes), e); err != nil {
			return out, err
		}
		for k, s := range d.episodes[e].scans {
			if s.err != nil {
				continue // already reported by Open
			}
			data, counts, err := whole.GatherRagged(
				ctx,
				keyPoints,
				[]robocache.Row{{Episode: e, Index: k}},
			)
			if err := ctx.Err(); err != nil {
				return out, err
			}
			if robocache.IsFatal(err) {
				return out, err
			}
			if err != nil {
				if len(out) < 1000 {
					out = append(
						out,
						robocache.Finding{
							Severity: robocache.SeverityError,
							Code:     "bad-scan",
							Where: robocache.Where{
								"episode": d.About.EpisodeIndex(e),
								"row":     k,
								"file":    s.name,
							},
							Message: err.Error(),
							Hint:    "fetch the file again",
						},
					)
				}
				continue
			}
			if counts[0] == 0 {
				empty++
				continue
			}
			n := counts[0] - copyFinite(data, data, d.width*d.dtype.Size(), d.dtype)
			if dropped += int64(n); n > 0 && firstDropped == nil {
				firstDropped = robocache.Where{
					"stream":  keyPoints,
					"episode": d.About.EpisodeIndex(e),
					"row":     k,
					"file":    s.name,
				}
			}
		}
		if t := d.episodes[e].timestamps; t != nil {
			same := int64(0)
			for k := 1; k < len(t); k++ {
				if t[k] == t[k-1] {
					same++
				}
			}
			if same > 0 {
				out = append(
					out,
					robocache.Finding{
						Severity: robocache.SeverityWarning,
						Code:     "duplicate-timestamps",
						Where:    robocache.Where{"episode": d.About.EpisodeIndex(e)},
						Message: fmt.Sprintf(
							"%d scans have the timestamp of the one before",
							same,
						),
						Count: same,
					},
				)
			}
		}
		if opt.Progress != nil {
			opt.Progress(int64(i+1), int64(len(eps)))
		}
	}
	if dropped > 0 {
		out = append(out, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "not-finite",
			Where:    firstDropped,
			Count:    dropped,
			Message: fmt.Sprintf(
				"%d points have a NaN or infinite coordinate; they are left out",
				dropped,
			),
			Hint: "Pass " + robocache.Option("options", "not_finite", "keep") + " to read them.",
		})
	}
	if empty > 0 {
		out = append(
			out,
			robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "empty-clouds",
				Where:    robocache.Where{"stream": keyPoints},
				Message:  fmt.Sprintf("%d scans have no points", empty),
				Count:    empty,
			},
		)
	}
	return out, nil
}
