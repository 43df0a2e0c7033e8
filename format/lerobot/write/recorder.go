package write

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// Recorder records episodes row by row while a robot runs. It records one episode at a time and
// must be used by one goroutine. The package comment has its contract.
type Recorder struct {
	dir         string // folder of the dataset
	ownDir      string // folder of unfinished work, inside dir
	createdDir  bool   // this recorder created dir
	dst         *store.Local
	lock        *os.File
	cfg         Config
	options     RecordOptions
	recount     func(context.Context) (robocache.Stats, error)
	queue       *semaphore.Weighted // counts bytes of images that wait for their encoders
	ctx         context.Context     // canceled to stop the encoders
	stop        context.CancelFunc
	freeBuffers chan []byte  // image buffers for reuse
	queuedBytes atomic.Int64 // bytes acquired from queue

	saved    recorded // the dataset in dir
	tail     tail
	current  *recording // the current episode; nil between episodes
	partsDir string     // folder of encoded episodes
	library  *video.Library
	counters Recording
}

// RecordOptions configures a recorder.
type RecordOptions struct {
	QueueBytes int64    // maximum bytes of images that wait for their encoders
	OnFull     OnFull   // behavior of AddFrame when the queue is full
	AllowNaN   []string // features that may hold NaN or infinite values; "*" allows all
	// Streams maps features with native clocks to their nominal rates in Hz. AddSample adds their
	// samples. A row holds the last sample at or before its time.
	Streams map[string]float64
	OnlyNew bool // rejects a folder that already holds a dataset
}

// OnFull selects what AddFrame does when the queue has no capacity for the images of a row.
type OnFull string

// The policies of OnFull. AddFrame waits for capacity, returns an error of class ErrTemporary, or
// drops the row. The zero value means OnFullBlock.
const (
	OnFullBlock OnFull = "block"
	OnFullRaise OnFull = "raise"
	OnFullDrop  OnFull = "drop"
)

// Recording holds the counters of a recorder.
type Recording struct {
	Episodes    int     `json:"episodes"`
	Frames      int64   `json:"frames"`
	Pending     int     `json:"pending"` // rows of the current episode
	Tasks       int     `json:"tasks"`
	QueueBytes  int64   `json:"queue_bytes"`              // the maximum
	QueuePeak   int64   `json:"queue_peak"`               // highest use so far
	Waits       int64   `json:"waits"`                    // rows that had to wait
	WaitSeconds float64 `json:"wait_seconds"`             // total of all waits
	LongestWait float64 `json:"longest_wait_seconds"`     // of a single row
	Refused     int64   `json:"refused"`                  // rows refused by OnFullRaise
	Dropped     int64   `json:"dropped"`                  // rows dropped by OnFullDrop
	Replaced    string  `json:"codec_replaced,omitempty"` // reason for replacing the default codec
}

// Recorded describes an existing dataset to which episodes are added.
type Recorded struct {
	Info     []byte // content of info.json
	Config   Config // rate, robot, features and tasks
	Episodes int
	Frames   int64
	Stats    robocache.Stats
	// NextEpisode, NextRow and NextFile are the next free numbers. Used numbers may have gaps, so
	// counts are not enough.
	NextEpisode int
	NextRow     int64
	NextFile    int
}

// recorded is the saved dataset, over all sessions.
type recorded struct {
	Recorded
	exact bool // stats.json holds exact statistics of all rows
	// totals holds the statistics of numbers, and of images without pixel counts.
	totals     map[string]*robocache.FeatureStats
	pixels     map[string]*stats.Pixels
	ownsReadme bool // README.md was written by RoboCache
}

// tail holds the episodes whose files still grow. Each save rewrites these files with the new
// episode at the end.
type tail struct {
	episodes            []tailEpisode
	firstEpisode        int // position of the first episode
	firstRow            int64
	firstFile, nextFile int // number of the first file, and the first free number
	bytes               int64
	files               []string // written by the last save

	// The state of the dataset before the first episode of the tail.
	base  recorded
	tasks []string
	head  map[string][]byte // content of the files that cover all episodes
}

const (
	// tailBytes and tailEpisodes limit a growing file. They bound what each save rewrites in
	// addition to the new episode.
	tailBytes    = 32 << 20
	tailEpisodes = 100
	// OwnFolder is the folder of unfinished work while a dataset is recorded.
	OwnFolder = ".robocache-recording"
	// countsName is the file of pixel counts to which later episodes are added.
	countsName = "meta/recording.json"
	// maxHeldBytes bounds the memory of the current episode: its numbers and still images.
	maxHeldBytes = 2 << 30

	// freeImages bounds the image buffers that are kept for reuse.
	freeImages = 32

	opRecord = "record"
)

// recordingCounts is the content of the file countsName.
type recordingCounts struct {
	Episodes int                      `json:"episodes"`
	Exact    bool                     `json:"exact"`
	Images   map[string]*stats.Pixels `json:"images"`
}

// NewRecorder creates a dataset in dir, or continues an existing one. existing reads that dataset
// and returns nil if there is none. recount computes its statistics of numbers. Features and rate
// that cfg lacks are taken from the dataset.
func NewRecorder(
	ctx context.Context,
	dir string,
	cfg Config,
	opt RecordOptions,
	existing func(context.Context) (*Recorded, error),
	recount func(context.Context) (robocache.Stats, error),
) (_ *Recorder, err error) {
	defer crash.Recover(opRecord, &err)
	defer robocache.LocateIn(&err, "dataset", dir)
	r := &Recorder{
		dir:         dir,
		ownDir:      filepath.Join(dir, OwnFolder),
		cfg:         cfg,
		options:     opt,
		recount:     recount,
		queue:       semaphore.NewWeighted(opt.QueueBytes),
		counters:    Recording{QueueBytes: opt.QueueBytes},
		freeBuffers: make(chan []byte, freeImages),
	}
	_, err = os.Stat(dir)
	r.createdDir = errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(r.ownDir, 0o777); err != nil {
		return nil, err
	}
	isReady := false
	defer func() {
		if !isReady {
			r.releaseFolder()
		}
	}()
	if err := r.lockFolder(ctx); err != nil {
		return nil, err
	}
	if r.dst, err = store.OpenLocal(dir); err != nil {
		return nil, err
	}
	if err := r.applyStaged(ctx); err != nil {
		return nil, err
	}
	if err := r.removeUnfinished(); err != nil {
		return nil, err
	}
	r.cfg.Video.Behind = true
	have, err := existing(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.resumeDataset(have); err != nil {
		return nil, err
	}
	if r.tail, err = r.beginTail(ctx, r.saved.NextFile); err != nil {
		return nil, err
	}
	if err := r.cfg.validate(); err != nil {
		return nil, err
	}
	if err := r.checkAllowed(); err != nil {
		return nil, err
	}
	if err := r.checkStreams(); err != nil {
		return nil, err
	}
	if err := r.checkEncoders(ctx); err != nil {
		return nil, err
	}
	if r.partsDir, err = os.MkdirTemp(r.ownDir, "parts-"); err != nil {
		return nil, err
	}
	if err := r.openParts(); err != nil {
		return nil, err
	}
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	isReady = true
	return r, nil
}

// lockWait bounds the wait for the lock of another recorder. A child of a killed process can hold
// the lock for a moment, between fork and exec.
const lockWait = 2 * time.Second

// lockFolder locks the folder against a second recorder. The kernel releases the lock of a killed
// process.
func (r *Recorder) lockFolder(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(r.ownDir, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(lockWait)
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for err != nil && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		_ = f.Close()
		return robocache.Misuse(opRecord, nil, "another Writer records into this folder").
			WithCause(err).WithHint("close it, or record into another folder")
	}
	r.lock = f
	return nil
}

// removeUnfinished removes the unfinished work of an earlier recorder.
func (r *Recorder) removeUnfinished() error {
	dir, err := os.ReadDir(r.ownDir)
	if err != nil {
		return err
	}
	for _, e := range dir {
		if e.Name() != "lock" {
			if err := os.RemoveAll(filepath.Join(r.ownDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// resumeDataset continues an existing dataset, or begins a new one if existing is nil. It rejects a
// configuration whose rate, features or streams differ from those of the dataset.
func (r *Recorder) resumeDataset(existing *Recorded) error {
	r.saved = recorded{
		exact:      true,
		totals:     map[string]*robocache.FeatureStats{},
		pixels:     map[string]*stats.Pixels{},
		ownsReadme: true,
	}
	if existing == nil {
		return nil
	}
	r.saved.Recorded = *existing
	c := &r.cfg
	old := existing.Config
	if c.FPS.Num == 0 {
		c.FPS = old.FPS
	}
	differs := func(what string, want, got any) error {
		return robocache.Misuse(opRecord, nil, "the existing dataset has another %s", what).
			Expected(fmt.Sprint(want), fmt.Sprint(got)).
			WithHint(
				"leave out features and fps to keep those of the dataset, or record into " +
					"another folder",
			)
	}
	if c.FPS != old.FPS {
		return differs("rate", old.FPS, c.FPS)
	}
	want := featureTexts(old.Features)
	got := featureTexts(c.Features)
	if len(c.Features) > 0 && !slices.Equal(want, got) {
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				return differs(
					"schema",
					textAt(want, i, "no such feature"),
					textAt(got, i, "nothing"),
				)
			}
		}
	}
	if err := r.resumeStreams(existing.Info); err != nil {
		return err
	}
	c.Features, c.Tasks, c.Robot = old.Features, old.Tasks, old.Robot
	r.counters.Episodes, r.counters.Frames = existing.Episodes, existing.Frames
	r.resumeStats(existing)
	// A README.md that exists may be a person's text, so the recorder does not replace it.
	b, err := os.ReadFile(filepath.Join(r.dir, "README.md"))
	r.saved.ownsReadme = err != nil || len(b) == 0
	return nil
}

// textAt returns the text at position i, or missing if there is none.
func textAt(texts []string, i int, missing string) string {
	if i < len(texts) {
		return texts[i]
	}
	return missing
}

// featureTexts returns a sorted text for each feature. Equal features have equal texts.
func featureTexts(list []robocache.Feature) (out []string) {
	for _, f := range list {
		text := fmt.Sprintf("%s: %s %v %v", f.Key, f.Kind, f.DType, f.Shape)
		if f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo {
			text = strings.TrimSpace(fmt.Sprintf(
				"%s: %s %v %v %s",
				f.Key,
				f.Kind,
				f.DType,
				[]int{f.Height, f.Width, f.Channels},
				f.DepthUnit(),
			))
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// resumeStats sets the statistics of the existing dataset. They are exact only if this recorder
// wrote them; another program may have.
func (r *Recorder) resumeStats(have *Recorded) {
	r.saved.exact = false
	var counts recordingCounts
	b, err := os.ReadFile(filepath.Join(r.dir, countsName))
	if err == nil && json.Unmarshal(b, &counts) == nil && counts.Episodes == have.Episodes {
		r.saved.exact = counts.Exact
		maps.Copy(r.saved.pixels, counts.Images)
	}
	for key, fs := range have.Stats {
		if fs != nil && r.saved.pixels[key] == nil && len(fs.Mean) > 0 {
			r.saved.totals[key] = fs
		}
	}
}

// checkEncoders rejects features that this machine cannot encode, and a queue that is too small for
// one row. NewRecorder calls it, so the error occurs before the robot moves.
func (r *Recorder) checkEncoders(ctx context.Context) error {
	var rowBytes int64
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		channels := 3
		if f.Depth != nil {
			channels = 1
		}
		switch {
		case f.Kind == robocache.KindVideo && f.Channels != channels:
			return robocache.Unsupported(
				opRecord,
				robocache.Where{"stream": f.Key},
				"video of other than 3 colour channels, or one of depth, is not recorded",
			).WithHint(`grey images: declare dtype "image", which keeps them without loss`)
		case f.Kind == robocache.KindVideo:
			coding, err := r.codingOf(f)
			if err != nil {
				return err
			}
			cfg := video.EncodeConfig{
				Codec:  video.Codec(coding.Codec),
				Width:  f.Width,
				Height: f.Height,
				Rate:   r.cfg.FPS,
				Preset: coding.Preset,
				Gray12: f.Depth != nil,
			}
			err = video.CanEncode(ctx, cfg)
			if cfg.Codec == "" && errors.Is(err, robocache.ErrUnsupported) {
				cfg.Codec = video.H264
				cfg.Preset = ""
				if video.CanEncode(ctx, cfg) == nil {
					r.counters.Replaced = err.Error()
					err = nil
				}
			}
			if err := robocache.At(err, robocache.Where{"stream": f.Key}); err != nil {
				return err
			}
		case f.Kind == robocache.KindEvent, f.Ragged():
			return robocache.Unsupported(
				opRecord,
				robocache.Where{"stream": f.Key},
				"streams of kind %s are not recorded",
				string(f.Kind),
			)
		}
		rowBytes += int64(pixelBytes(f))
	}
	if rowBytes > r.counters.QueueBytes {
		return robocache.Misuse(opRecord, nil, "queue_bytes").
			Expected(
				fmt.Sprintf("room for the images of one row, %d bytes", rowBytes),
				strconv.FormatInt(r.counters.QueueBytes, 10),
			)
	}
	return nil
}

// checkAllowed rejects keys of AllowNaN that are not features.
func (r *Recorder) checkAllowed() error {
	for _, key := range r.options.AllowNaN {
		hasKey := func(f robocache.Feature) bool { return f.Key == key }
		if key != "*" && !slices.ContainsFunc(r.cfg.Features, hasKey) {
			return robocache.Misuse(
				opRecord,
				robocache.Where{"stream": key},
				"allow_nan: no such feature",
			).WithHint("name a declared feature, or pass %s", robocache.Option("allow_nan", true))
		}
	}
	return nil
}

// codingOf returns how a camera is encoded. An existing dataset keeps its codec, because info.json
// states one codec for all files of a camera. Depth is encoded without loss, with a preset that is
// fast enough for a robot's loop.
func (r *Recorder) codingOf(f *robocache.Feature) (VideoConfig, error) {
	coding := r.cfg.Video
	if f.Depth != nil {
		return VideoConfig{GOP: coding.GOP, Preset: "ultrafast", Behind: coding.Behind}, nil
	}
	if r.saved.Info == nil || f.Codec == "" {
		return coding, nil
	}
	if c := coding.Codec; c != "" && c != f.Codec {
		return VideoConfig{}, robocache.Misuse(
			opRecord,
			robocache.Where{"stream": f.Key},
			"the existing dataset has another codec",
		).Expected(f.Codec, c).
			WithHint("leave video_codec out, or record into another folder")
	}
	coding.Codec = f.Codec
	return coding, nil
}

// pixelBytes returns the size of an image as AddFrame receives it, or 0 for other features. Depth
// that is stored as codes is received in its unit; metres are float32.
func pixelBytes(f *robocache.Feature) int {
	size := f.DType.Size()
	switch {
	case f.Kind != robocache.KindVideo && f.Kind != robocache.KindImage:
		return 0
	case f.Kind == robocache.KindVideo && f.DepthUnit() == "m":
		size = robocache.Float32.Size()
	}
	return f.Height * f.Width * f.Channels * size
}

// GivenBytes returns the size of a row of f as AddFrame receives it.
func GivenBytes(f *robocache.Feature) int { return cmp.Or(pixelBytes(f), f.RowBytes()) }

// openParts opens the library of encoded episodes.
func (r *Recorder) openParts() error {
	st, err := store.OpenLocal(r.partsDir)
	if err != nil {
		return err
	}
	r.library = video.NewLibrary(st.Open, 0)
	return nil
}

// Config returns the configuration of the recording, with its rate and features.
func (r *Recorder) Config() Config { return r.cfg }

// Counted returns the counters of the recording and of its queue.
func (r *Recorder) Counted() Recording {
	c := r.counters
	c.Tasks = len(r.cfg.Tasks)
	if r.current != nil {
		c.Pending = r.current.rows
	}
	return c
}

// Close ends the recording. It computes exact statistics over all episodes and removes unfinished
// work. Rows of an episode that was not saved are dropped.
func (r *Recorder) Close(ctx context.Context) (err error) {
	defer crash.Recover(opRecord, &err)
	defer robocache.LocateIn(&err, "dataset", r.dir)
	r.Discard()
	if r.lock == nil {
		return nil
	}
	if r.counters.Episodes > 0 && !r.saved.exact {
		all, err := r.recount(ctx)
		if err != nil {
			return err
		}
		maps.Copy(all, r.frameStats(&r.saved))
		encoded, err := stats.Marshal(all)
		if err != nil {
			return err
		}
		if err := store.Put(ctx, r.dst, "meta/stats.json", encoded); err != nil {
			return err
		}
		r.saved.exact = true
		counts, err := r.saved.countsText(r.counters.Episodes)
		if err != nil {
			return err
		}
		if err := store.Put(ctx, r.dst, countsName, counts); err != nil {
			return err
		}
	}
	r.releaseFolder()
	return nil
}

// Abort ends the recording without computing statistics. Saved episodes remain, and quantiles of
// their numbers are computed when the next recorder is closed.
func (r *Recorder) Abort() {
	r.Discard()
	r.releaseFolder()
}

// releaseFolder stops the encoders, removes unfinished work, and releases the lock.
func (r *Recorder) releaseFolder() {
	if r.stop != nil {
		r.stop()
	}
	if r.library != nil {
		_ = r.library.Close()
	}
	if r.lock != nil {
		_ = os.RemoveAll(r.ownDir)
		_ = r.lock.Close()
	}
	if r.dst != nil {
		_ = r.dst.Close()
	}
	if r.createdDir {
		_ = os.Remove(r.ownDir) // fails if another recorder holds the lock in it
		_ = os.Remove(r.dir)    // fails if an episode was saved
	}
	r.lock, r.dst, r.library = nil, nil, nil
}

// errIfClosed returns an error if the recorder is closed.
func (r *Recorder) errIfClosed() error {
	if r.lock == nil {
		return robocache.Misuse(opRecord, nil, "the Writer is closed").
			WithHint("create a new Writer: it continues after the last saved episode")
	}
	return nil
}

// countWait counts a row that waited for capacity in the queue.
func (r *Recorder) countWait(since time.Time) {
	d := time.Since(since).Seconds()
	r.counters.Waits++
	r.counters.WaitSeconds += d
	r.counters.LongestWait = max(r.counters.LongestWait, d)
}
