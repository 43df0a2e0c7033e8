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

// WriteOptions describes the options of Write.
var WriteOptions = map[string]string{
	"video": "copy (default): packets of H.264, HEVC, AV1 and VP9 as foxglove " +
		"CompressedVideo, as they are; stills: each frame becomes an image, as images says",
	"images": "png (default), jpeg or raw: what images become that are no files yet (raw " +
		"pixels, frames of video as stills): png and raw lose nothing; said without " +
		"video=copy, frames of video too",
	"compression": "zstd (default) or none",
	"chunk":       "bytes of messages in a chunk (default 1048576)",
}

// Write writes one file per episode into the folder dst, which must be empty. If dst ends in .mcap
// and there is one episode, dst is the file.
//
// Numbers become std_msgs MultiArrays of their dtype; bool becomes uint8, and float16 and bfloat16
// are stored as bits in uint16. Images become CompressedImage or Image, video packets foxglove
// CompressedVideo, point clouds PointCloud2, and texts String. The task becomes the topic /task.
// Log time, publish time and header stamp are the row's timestamp. A metadata record "robocache"
// stores everything else, so that the file opens as the original dataset.
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (_ *robocache.WriteReport, err error) {
	defer crash.RecoverFile("mcap write", dst, &err)
	w := &datasetWriter{
		source:  src,
		info:    src.Info(),
		options: opt,
		report:  &robocache.WriteReport{},
	}
	if err := w.parseOptions(); err != nil {
		return nil, err
	}
	if err := w.chooseTargets(); err != nil {
		return nil, err
	}
	eps := reader.Episodes(opt.Episodes, w.info.Episodes)
	w.pool = video.NewPool(256 << 20)
	defer w.pool.Close()
	w.videoLibrary = video.LibraryOf(src)
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
	if err := w.encodeNote(); err != nil {
		return nil, err
	}
	w.report.Findings = append(w.report.Findings, w.info.SplitsDropped(eps)...)
	folder, single := dst, ""
	if len(eps) == 1 && bag.Named(dst, fileSuffix) {
		i := strings.LastIndexAny(dst, `/\`)
		folder, single = cmp.Or(dst[:i+1], "."), dst[i+1:]
	}
	st, err := store.OpenWritable(folder)
	if err != nil {
		return nil, err
	}
	defer store.Close(st)
	if err := checkDestination(ctx, st, single); err != nil {
		return nil, err
	}
	if single == "" {
		// Each file is complete or absent, but after a kill the folder would open with only some of
		// the files.
		created, err := st.Create(ctx, reader.Unfinished)
		if err != nil {
			return nil, err
		}
		if err := created.Commit(); err != nil {
			return nil, err
		}
	}
	if err := w.writeEpisodes(ctx, st, eps, first, single); err != nil {
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

// sharding lets shards write separate files, because each recording is a file. A video stream is
// copied as packets only if this is possible in every episode.
var sharding = robocache.Sharding{
	Kept: func(name string) bool {
		return bag.Named(name, fileSuffix) && !strings.Contains(name, "/")
	},
	Unfinished: reader.Unfinished,
	Plan: func(ctx context.Context, src robocache.Dataset, opt robocache.WriteOptions) (_ json.RawMessage, err error) {
		defer crash.Recover("plan", &err)
		w := &datasetWriter{
			source:       src,
			info:         src.Info(),
			options:      opt,
			report:       &robocache.WriteReport{},
			videoLibrary: video.LibraryOf(src),
		}
		if err := w.parseOptions(); err != nil {
			return nil, err
		}
		if err := w.chooseTargets(); err != nil {
			return nil, err
		}
		if err := w.findPackets(ctx, reader.Episodes(opt.Episodes, w.info.Episodes)); err != nil {
			return nil, err
		}
		s := shardSchema{Stills: []string{}}
		for i := range w.streams {
			if t := &w.streams[i]; t.feature.Kind == robocache.KindVideo && t.kind != asPackets {
				s.Stills = append(s.Stills, t.feature.Key)
			}
		}
		return json.Marshal(s)
	},
}

// shardSchema holds decisions that all shards share.
type shardSchema struct {
	Stills []string `json:"stills"` // cameras whose frames become images
}

// checkDestination returns an error if the destination holds files that would be overwritten or
// mixed with the written ones.
func checkDestination(ctx context.Context, st store.Store, single string) error {
	taken := robocache.Misuse("mcap write", robocache.Where{
		"dataset": st.URI(),
	}, "the destination is not empty").
		WithHint(
			"choose an empty or new folder; files of a conversion that was killed can be deleted",
		)
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

// datasetWriter is the state of one call of Write.
type datasetWriter struct {
	source        robocache.Dataset
	info          *robocache.Info
	options       robocache.WriteOptions
	images        string
	copiesPackets bool // copy packets of video
	compression   container.Compression
	chunk         int
	streams       []target
	stills        shardSchema
	datasetNote   string // the metadata note as JSON
	pool          *video.Pool
	videoLibrary  *video.Library
	rows          *robocache.RowCounter
	origins       *origin.Tracer

	mu     sync.Mutex
	report *robocache.WriteReport
}

func (w *datasetWriter) parseOptions() error {
	var frames, images, compression string
	w.chunk = 1 << 20
	if err := reader.Op("mcap write").Settle(w.options.Options, WriteOptions, map[string]reader.Set{
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
	// The option "images" alone also applies to frames of video.
	w.copiesPackets = frames == "copy" || frames == "" && images == ""
	return nil
}

// canKeep reports whether a message can hold rows of a stream.
func canKeep(f *robocache.Feature) bool {
	t := target{feature: *f}
	return t.selectType()
}

// chooseTargets selects topic, type and layout of each stream.
func (w *datasetWriter) chooseTargets() error {
	taken := map[string]bool{bag.TaskTopic: w.info.Feature("task") == nil}
	for i := range w.info.Features {
		f := w.info.Features[i]
		if !w.options.Wants(&f) {
			continue
		}
		t := target{feature: f, topic: topicOf(f.Key, taken)}
		if !t.selectType() {
			w.report.Dropped = append(w.report.Dropped, f.Key)
			continue
		}
		w.streams = append(w.streams, t)
	}
	for _, k := range w.options.Keys {
		if w.info.Feature(k) == nil {
			return robocache.Misuse("mcap write", robocache.Where{"stream": k}, "no such stream")
		}
	}
	return nil
}

// encodeNote makes the metadata note with the information that messages do not contain.
func (w *datasetWriter) encodeNote() error {
	note := bag.Layout{
		Format: w.info.Format,
		FPS:    w.info.FPS,
		Robot:  w.info.Robot,
		Clock:  w.info.Clock,
	}
	for i := range w.streams {
		t := &w.streams[i]
		kept := t.feature
		if kept.Kind == robocache.KindVideo && t.kind != asPackets {
			kept.Kind, kept.Codec = robocache.KindImage, ""
			if kept.Depth != nil { // decoded as 32FC1
				kept.DType, kept.Unit, kept.Depth = robocache.Float32, "m", nil
			}
		}
		note.Streams = append(
			note.Streams,
			bag.LayoutStream{Topic: t.topic, Feature: kept, Colour: t.colour},
		)
	}
	note.SetTasks(w.info.Tasks)
	encoded, err := json.Marshal(note)
	if err != nil {
		return err
	}
	w.datasetNote = string(encoded)
	return nil
}

// topicOf returns the topic of a key. It replaces "." by "/", and characters that a ROS name cannot
// contain by "_".
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

// writeEpisodes writes the episodes, several at a time. If one fails, the written files are
// removed.
func (w *datasetWriter) writeEpisodes(
	ctx context.Context,
	st store.Writable,
	eps []int,
	first int,
	single string,
) error {
	var written []string
	w.rows = robocache.NewRowCounter(w.source, eps, w.options.Progress)
	w.origins = origin.NewTracer(w.source, w.options)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(max(w.options.Threads, 0), runtime.GOMAXPROCS(0)))
	for i, ep := range eps {
		g.Go(func() (err error) {
			defer crash.Recover("mcap write", &err)
			name := single
			if name == "" {
				name = fmt.Sprintf("episode_%06d%s", first+i, fileSuffix)
			}
			rows, size, bad, err := w.writeFile(gctx, st, name, first+i, ep)
			bad = robocache.At(bad, robocache.Where{"episode": w.info.EpisodeIndex(ep)})
			if err == nil && bad != nil &&
				(!w.options.SkipBad || gctx.Err() != nil || !robocache.Bad(bad)) {
				err = bad
			}
			if err := robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(ep)}); err !=
				nil {
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

// writeFile writes one episode. bad is an error of reading the episode, and err is an error of
// writing.
func (w *datasetWriter) writeFile(
	ctx context.Context,
	st store.Writable,
	name string,
	index, ep int,
) (rows, size int64, bad, err error) {
	defer crash.Recover("mcap", &err)
	e, bad := w.source.Episode(ctx, ep)
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
	if bad := w.writeMessages(ctx, cw, ep); bad != nil {
		return 0, 0, bad, buf.Flush() // returns an error if a write failed
	}
	if w.options.Renumber {
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
	if err := cw.Metadata(bag.LayoutRecord, map[string]string{
		bag.LayoutDataset:    w.datasetNote,
		bag.LayoutEpisodeKey: string(meta),
	}); err != nil {
		return rows, size, bad, err
	}
	if err := cw.Close(); err != nil {
		return rows, size, bad, err
	}
	if err := buf.Flush(); err != nil {
		return rows, size, bad, err
	}
	return int64(w.source.Len(ep)), cw.Bytes(), nil, out.Commit()
}
