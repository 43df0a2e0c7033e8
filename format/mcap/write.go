package mcap

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// WriteOptions names the options of Write.
var WriteOptions = map[string]string{
	"video":       "copy (default): packets of H.264, HEVC, AV1 and VP9 as foxglove CompressedVideo, as they are; stills: each frame becomes an image, as images says",
	"images":      "png (default), jpeg or raw: what images become that are no files yet (raw pixels, frames of video as stills): png and raw lose nothing; said without video=copy, frames of video too",
	"compression": "zstd (default) or none",
	"chunk":       "bytes of messages in a chunk (default 1048576)",
}

// Write writes a file an episode into the folder dst, which must be empty; or a single episode as
// the file dst, where that ends in .mcap.
//
// Numbers become std_msgs MultiArrays of their own dtype (bool as uint8, float16 and bfloat16 as
// the bits in uint16), images CompressedImage or Image, packets of video foxglove CompressedVideo,
// clouds PointCloud2, texts String, the task the topic /task. Log time, publish time and header are
// the row's timestamp. A metadata record "robocache" keeps what messages do not say: with it the
// file opens as the dataset it was.
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (_ *robocache.WriteReport, err error) {
	defer crash.RecoverFile("mcap write", dst, &err)
	w := &writing{src: src, info: src.Info(), opt: opt, report: &robocache.WriteReport{}}
	if err := w.options(); err != nil {
		return nil, err
	}
	if err := w.choose(); err != nil {
		return nil, err
	}
	eps := reader.Episodes(opt.Episodes, w.info.Episodes)
	w.pool = video.NewPool(256 << 20)
	defer w.pool.Close()
	w.lib = video.LibraryOf(src)
	first := 0
	if s := opt.Shard; s != nil {
		first = s.FirstEpisode
		if err := json.Unmarshal(s.Schema, &w.stills); err != nil {
			return nil, robocache.Malformed("mcap write", nil, "the schema of the plan").
				WithCause(err)
		}
	}
	if err := w.findPackets(ctx, eps); err != nil {
		return nil, err
	}
	if err := w.describe(); err != nil {
		return nil, err
	}
	w.report.Findings = append(w.report.Findings, w.info.SplitsDropped(eps)...)
	folder, single := dst, ""
	if len(eps) == 1 && bag.Named(dst, ending) {
		i := strings.LastIndexAny(dst, `/\`)
		folder, single = cmp.Or(dst[:i+1], "."), dst[i+1:]
	}
	st, err := store.OpenWritable(folder)
	if err != nil {
		return nil, err
	}
	defer store.Close(st)
	if err := free(ctx, st, single); err != nil {
		return nil, err
	}
	if single == "" {
		// Each file is whole or not there, but a folder of them would open with those that a kill
		// left.
		created, err := st.Create(ctx, reader.Unfinished)
		if err != nil {
			return nil, err
		}
		if err := created.Commit(); err != nil {
			return nil, err
		}
	}
	if err := w.all(ctx, st, eps, first, single); err != nil {
		if single == "" {
			_ = st.Remove(context.WithoutCancel(ctx), reader.Unfinished)
		}
		return nil, err
	}
	if single == "" {
		if err := st.Remove(ctx, reader.Unfinished); err != nil {
			return nil, err
		}
	}
	return w.report, nil
}

// sharding: a recording is a file, so that those of all shards are the whole. A stream is copied as
// packets where it can be in every episode.
var sharding = robocache.Sharding{
	Kept:       func(name string) bool { return bag.Named(name, ending) && !strings.Contains(name, "/") },
	Unfinished: reader.Unfinished,
	Plan: func(ctx context.Context, src robocache.Dataset, opt robocache.WriteOptions) (_ json.RawMessage, err error) {
		defer crash.Recover("plan", &err)
		w := &writing{
			src:    src,
			info:   src.Info(),
			opt:    opt,
			report: &robocache.WriteReport{},
			lib:    video.LibraryOf(src),
		}
		if err := w.options(); err != nil {
			return nil, err
		}
		if err := w.choose(); err != nil {
			return nil, err
		}
		if err := w.findPackets(ctx, reader.Episodes(opt.Episodes, w.info.Episodes)); err != nil {
			return nil, err
		}
		s := shardSchema{Stills: []string{}}
		for i := range w.streams {
			if t := &w.streams[i]; t.feature.Kind == robocache.KindVideo && t.how != asPackets {
				s.Stills = append(s.Stills, t.feature.Key)
			}
		}
		return json.Marshal(s)
	},
}

// shardSchema is what all shards do alike.
type shardSchema struct {
	Stills []string `json:"stills"` // cameras whose frames become images
}

// free says that the destination holds nothing that would be overwritten or mixed up with what is
// written.
func free(ctx context.Context, st store.Store, single string) error {
	taken := robocache.Misuse("mcap write", robocache.Where{"dataset": st.URI()}, "the destination is not empty").
		WithHint("choose a folder that is empty, or not there yet; what a conversion left that was killed can go")
	if single != "" {
		if _, err := st.Stat(ctx, single); err == nil {
			return taken
		} else if !errors.Is(err, robocache.ErrNotFound) {
			return err
		}
		return nil
	}
	entries, err := st.List(ctx, "")
	if err == nil && len(entries) > 0 {
		return taken
	}
	return err
}

// writing is one call of Write.
type writing struct {
	src         robocache.Dataset
	info        *robocache.Info
	opt         robocache.WriteOptions
	images      string
	copies      bool // packets of video
	compression container.Compression
	chunk       int
	streams     []target
	stills      shardSchema
	dataset     string // the note, as JSON
	pool        *video.Pool
	lib         *video.Library
	rows        *robocache.RowCounter
	origins     *origin.Tracer

	mu     sync.Mutex
	report *robocache.WriteReport
}

func (w *writing) options() error {
	var frames, images, compression string
	w.chunk = 1 << 20
	if err := reader.Op("mcap write").Settle(w.opt.Options, WriteOptions, map[string]reader.Set{
		"video": reader.Text(
			&frames,
			"copy",
			"stills",
		),
		"images":      reader.Text(&images, "png", "jpeg", "raw"),
		"compression": reader.Text(&compression, "zstd", "none"),
		"chunk":       reader.Whole(&w.chunk, 1024, 128<<20),
	}); err != nil {
		return err
	}
	w.images, w.compression = cmp.Or(images, "png"), container.Zstd
	if compression == "none" {
		w.compression = container.None
	}
	// Who says what frames become means images.
	w.copies = frames == "copy" || frames == "" && images == ""
	return nil
}

// keeps reports whether a message can hold rows of a stream.
func keeps(f *robocache.Feature) bool {
	t := target{feature: *f}
	return t.settle()
}

// choose settles topic, type and layout of each stream.
func (w *writing) choose() error {
	taken := map[string]bool{bag.TaskTopic: w.info.Feature("task") == nil}
	for i := range w.info.Features {
		f := w.info.Features[i]
		if !w.opt.Wants(&f) {
			continue
		}
		t := target{feature: f, topic: topicOf(f.Key, taken)}
		if !t.settle() {
			w.report.Dropped = append(w.report.Dropped, f.Key)
			continue
		}
		w.streams = append(w.streams, t)
	}
	for _, k := range w.opt.Keys {
		if w.info.Feature(k) == nil {
			return robocache.Misuse("mcap write", robocache.Where{"stream": k}, "no such stream")
		}
	}
	return nil
}

// describe makes the note of what messages do not say.
func (w *writing) describe() error {
	note := bag.Layout{
		Format: w.info.Format,
		FPS:    w.info.FPS,
		Robot:  w.info.Robot,
		Clock:  w.info.Clock,
	}
	for i := range w.streams {
		t := &w.streams[i]
		kept := t.feature
		if kept.Kind == robocache.KindVideo && t.how != asPackets {
			kept.Kind, kept.Codec = robocache.KindImage, ""
			if kept.Depth != nil { // decoded: 32FC1
				kept.DType, kept.Unit, kept.Depth = robocache.Float32, "m", nil
			}
		}
		note.Streams = append(
			note.Streams,
			bag.LayoutStream{Topic: t.topic, Feature: kept, Colour: t.colour},
		)
	}
	note.Number(w.info.Tasks)
	encoded, err := json.Marshal(note)
	if err != nil {
		return err
	}
	w.dataset = string(encoded)
	return nil
}

// topicOf is the topic of a key: "." becomes "/", and what a ROS name cannot hold "_".
func topicOf(key string, taken map[string]bool) string {
	base := "/" + strings.Map(func(r rune) rune {
		switch {
		case r == '.':
			return '/'
		case r == '/' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	name := base
	for n := 2; taken[name]; n++ {
		name = base + "_" + strconv.Itoa(n)
	}
	taken[name] = true
	return name
}

// all writes the episodes, several at a time. What was written goes again where one fails.
func (w *writing) all(
	ctx context.Context,
	st store.Writable,
	eps []int,
	first int,
	single string,
) error {
	var written []string
	w.rows = robocache.NewRowCounter(w.src, eps, w.opt.Progress)
	w.origins = origin.NewTracer(w.src, w.opt)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(w.opt.Threads, 0), runtime.GOMAXPROCS(0)))
	for i, ep := range eps {
		g.Go(func() (err error) {
			defer crash.Recover("mcap write", &err)
			name := single
			if name == "" {
				name = fmt.Sprintf("episode_%06d%s", first+i, ending)
			}
			rows, size, bad, err := w.file(gctx, st, name, first+i, ep)
			bad = robocache.At(bad, robocache.Where{"episode": w.info.EpisodeIndex(ep)})
			if err == nil && bad != nil &&
				(!w.opt.SkipBad || gctx.Err() != nil || !robocache.Bad(bad)) {
				err = bad
			}
			if err := robocache.At(
				err,
				robocache.Where{"episode": w.info.EpisodeIndex(ep)},
			); err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if bad != nil {
				w.report.Findings = append(
					w.report.Findings,
					robocache.Finding{
						Severity: robocache.SeverityError,
						Code:     "episode-left-out",
						Where:    robocache.Where{"episode": w.info.EpisodeIndex(ep)},
						Message:  bad.Error(),
					},
				)
			} else {
				written = append(written, name)
				w.report.Episodes++
				w.report.Frames += rows
				w.report.Bytes += size
			}
			w.rows.Finish(ep)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		for _, name := range written {
			_ = st.Remove(context.WithoutCancel(ctx), name)
		}
		return err
	}
	return nil
}

// file writes one episode. bad says why it cannot be read; what cannot be written is err.
func (w *writing) file(
	ctx context.Context,
	st store.Writable,
	name string,
	index, ep int,
) (rows, size int64, bad, err error) {
	defer crash.Recover("mcap", &err)
	e, bad := w.src.Episode(ctx, ep)
	if bad != nil {
		return 0, 0, bad, nil
	}
	out, err := st.Create(ctx, name)
	if err != nil {
		return rows, size, bad, err
	}
	defer out.Abort()
	buf := bufio.NewWriterSize(out, 256<<10)
	cw, err := container.NewWriter(
		buf,
		container.WriterOptions{
			Profile:     "ros2",
			Library:     "robocache",
			Chunk:       w.chunk,
			Compression: w.compression,
		},
	)
	if err != nil {
		return rows, size, bad, err
	}
	if bad := w.messages(ctx, cw, ep); bad != nil {
		return 0, 0, bad, buf.Flush() // which knows of a write that failed
	}
	if w.opt.Renumber {
		e.Index = int64(index)
	}
	note := bag.LayoutEpisode{Index: e.Index, Length: e.Length, Tasks: e.Tasks}
	if note.Source, err = w.origins.Of(ctx, ep); err != nil {
		return rows, size, bad, err
	}
	meta, err := json.Marshal(note)
	if err != nil {
		return rows, size, bad, err
	}
	if err := cw.Metadata(
		bag.LayoutRecord,
		map[string]string{bag.LayoutDataset: w.dataset, bag.LayoutEpisodeKey: string(meta)},
	); err != nil {
		return rows, size, bad, err
	}
	if err := cw.Close(); err != nil {
		return rows, size, bad, err
	}
	if err := buf.Flush(); err != nil {
		return rows, size, bad, err
	}
	return int64(w.src.Len(ep)), cw.Bytes(), nil, out.Commit()
}
