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

// Recorder records episodes row by row beside a robot's loop, one at a time, by one goroutine. See
// the contract of the package.
type Recorder struct {
	dir     string // of the dataset
	own     string // of what is unfinished, within dir
	made    bool   // dir was made here
	dst     *store.Local
	lock    *os.File
	cfg     Config
	opt     RecordOptions
	recount func(context.Context) (robocache.Stats, error)
	queue   *semaphore.Weighted // bytes of images that wait for their encoders
	ctx     context.Context     // of the encoders
	stop    context.CancelFunc
	free    chan []byte  // image buffers
	waiting atomic.Int64 // bytes taken of queue

	whole recorded // what lies in dir
	tail  tail
	now   *recording // the episode under way; nil between episodes
	parts string     // folder of encoded episodes
	lib   *video.Library
	count Recording
}

// RecordOptions configures a recorder.
type RecordOptions struct {
	QueueBytes int64    // bound of the images that wait for their encoders
	OnFull     OnFull   // what AddFrame does when the queue is full
	AllowNaN   []string // features whose values may be NaN or infinite; "*": all
	// Streams are features with native clocks, and their nominal rates in Hz. AddSample adds their
	// samples; rows hold the last sample at or before their time.
	Streams map[string]float64
	OnlyNew bool // refuses a folder that holds a dataset
}

// OnFull is what AddFrame does when the queue has no room for the images of a row.
type OnFull string

// AddFrame waits for room, returns an error of class ErrTemporary, or drops the row. The zero value
// is OnFullBlock.
const (
	OnFullBlock OnFull = "block"
	OnFullRaise OnFull = "raise"
	OnFullDrop  OnFull = "drop"
)

// Recording is what a recorder has counted.
type Recording struct {
	Episodes    int     `json:"episodes"`
	Frames      int64   `json:"frames"`
	Pending     int     `json:"pending"` // rows of the episode under way
	Tasks       int     `json:"tasks"`
	QueueBytes  int64   `json:"queue_bytes"`              // the bound
	QueuePeak   int64   `json:"queue_peak"`               // the most that waited at a time
	Waits       int64   `json:"waits"`                    // rows that waited for room
	WaitSeconds float64 `json:"wait_seconds"`             // how long, together
	LongestWait float64 `json:"longest_wait_seconds"`     // of one row
	Refused     int64   `json:"refused"`                  // rows that OnFullRaise refused
	Dropped     int64   `json:"dropped"`                  // rows that OnFullDrop dropped
	Replaced    string  `json:"codec_replaced,omitempty"` // why the default codec was not taken
}

// Recorded is a dataset to which episodes are added.
type Recorded struct {
	Info     []byte // info.json as it is
	Config   Config // rate, robot, features, tasks
	Episodes int
	Frames   int64
	Stats    robocache.Stats
	// The next free numbers. Numbers may have holes, so counts must not be used instead.
	NextEpisode int
	NextRow     int64
	NextFile    int
}

// recorded is what was saved so far, over all sessions.
type recorded struct {
	Recorded
	exact bool // stats.json holds exact statistics of all rows
	// of numbers; of frames: those of sessions that did not keep their counts
	totals map[string]*robocache.FeatureStats
	looks  map[string]*stats.Pixels
	card   bool // README.md is ours
}

// tail is the episodes whose files are still growing. Each save rewrites these files with the new
// episode at their end.
type tail struct {
	eps        []tailEpisode
	first      int // episode
	row        int64
	file, next int // number of its first file, and the first that is free after it
	bytes      int64
	files      []string // that the last save wrote

	// The dataset before the first of eps.
	base  recorded
	tasks []string
	head  map[string][]byte // the files above all episodes
}

const (
	// tailBytes and tailEpisodes are where a file stops growing: each save writes so much again at
	// most, besides the new episode.
	tailBytes    = 32 << 20
	tailEpisodes = 100
	// OwnFolder holds what is unfinished while a dataset is recorded.
	OwnFolder = ".robocache-recording"
	// countsName holds counts that statistics of later episodes are added to.
	countsName = "meta/recording.json"
	// heldBytes bounds what an episode under way keeps in memory, numbers and still images.
	heldBytes = 2 << 30

	// freeImages bounds the buffers that are kept for the next images.
	freeImages = 32

	opRecord = "record"
)

// recordingCounts is the file of that name.
type recordingCounts struct {
	Episodes int                      `json:"episodes"`
	Exact    bool                     `json:"exact"`
	Images   map[string]*stats.Pixels `json:"images"`
}

// NewRecorder creates a dataset in a folder, or continues an existing one. existing reads that
// dataset (nil if there is none), recount computes its statistics of numbers. Features and rate
// that cfg lacks are those of the dataset.
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
		dir:     dir,
		own:     filepath.Join(dir, OwnFolder),
		cfg:     cfg,
		opt:     opt,
		recount: recount,
		queue:   semaphore.NewWeighted(opt.QueueBytes),
		count:   Recording{QueueBytes: opt.QueueBytes},
		free:    make(chan []byte, freeImages),
	}
	_, err = os.Stat(dir)
	r.made = errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(r.own, 0o777); err != nil {
		return nil, err
	}
	ready := false
	defer func() {
		if !ready {
			r.leave()
		}
	}()
	if err := r.takeLock(ctx); err != nil {
		return nil, err
	}
	if r.dst, err = store.OpenLocal(dir); err != nil {
		return nil, err
	}
	if err := r.apply(ctx); err != nil {
		return nil, err
	}
	if err := r.clear(); err != nil {
		return nil, err
	}
	r.cfg.Video.Behind = true
	existingValue, err := existing(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.resume(existingValue); err != nil {
		return nil, err
	}
	if r.tail, err = r.beginTail(ctx, r.whole.NextFile); err != nil {
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
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	if r.parts, err = os.MkdirTemp(r.own, "parts-"); err != nil {
		return nil, err
	}
	if err := r.openParts(); err != nil {
		return nil, err
	}
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	ready = true
	return r, nil
}

// lockWait bounds the wait for the lock of another recorder. A child of a killed process can hold
// the lock for a moment, between fork and exec.
const lockWait = 2 * time.Second

// takeLock locks the folder against a second recorder. The kernel releases the lock of a killed
// process.
func (r *Recorder) takeLock(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(r.own, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
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

// clear removes what an earlier recorder left unfinished.
func (r *Recorder) clear() error {
	dir, err := os.ReadDir(r.own)
	if err != nil {
		return err
	}
	for _, e := range dir {
		if e.Name() != "lock" {
			if err := os.RemoveAll(filepath.Join(r.own, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume takes over what is there, and refuses what does not fit it.
func (r *Recorder) resume(have *Recorded) error {
	r.whole = recorded{
		exact:  true,
		totals: map[string]*robocache.FeatureStats{},
		looks:  map[string]*stats.Pixels{},
		card:   true,
	}
	if have == nil {
		return nil
	}
	r.whole.Recorded = *have
	c, old := &r.cfg, have.Config
	if c.FPS.Num == 0 {
		c.FPS = old.FPS
	}
	differs := func(what string, want, got any) error {
		return robocache.Misuse(opRecord, nil, "the dataset that is there has another %s", what).
			Expected(fmt.Sprint(want), fmt.Sprint(got)).
			WithHint("leave features and fps out to go on with its own, or record into another folder")
	}
	if c.FPS != old.FPS {
		if err := differs("rate", old.FPS, c.FPS); err != nil {
			return err
		}
	}
	said := func(list []robocache.Feature) (out []string) {
		for _, f := range list {
			out = append(
				out,
				strings.TrimSpace(
					fmt.Sprintf(
						"%s: %s %v %v %s",
						f.Key,
						f.Kind,
						f.DType,
						[]int{f.Height, f.Width, f.Channels},
						f.DepthUnit(),
					),
				),
			)
			if f.Kind != robocache.KindImage && f.Kind != robocache.KindVideo {
				out[len(out)-1] = fmt.Sprintf("%s: %s %v %v", f.Key, f.Kind, f.DType, f.Shape)
			}
		}
		slices.Sort(out)
		return out
	}
	if want, got := said(
		old.Features,
	), said(
		c.Features,
	); len(c.Features) > 0 &&
		!slices.Equal(want, got) {
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				if err := differs(
					"schema",
					append(want, "no such feature")[min(i, len(want))],
					append(got, "nothing")[min(i, len(got))],
				); err != nil {
					return err
				}
			}
		}
	}
	if err := r.resumeStreams(have.Info); err != nil {
		return err
	}
	c.Features, c.Tasks, c.Robot = old.Features, old.Tasks, old.Robot
	r.count.Episodes, r.count.Frames = have.Episodes, have.Frames
	r.whole.exact = false // another program may have written them
	var counts recordingCounts
	if b, err := os.ReadFile(
		filepath.Join(r.dir, countsName),
	); err == nil && json.Unmarshal(b, &counts) == nil &&
		counts.Episodes == have.Episodes {
		r.whole.exact = counts.Exact
		maps.Copy(r.whole.looks, counts.Images)
	}
	for key, fs := range have.Stats {
		if fs != nil && r.whole.looks[key] == nil && len(fs.Mean) > 0 {
			r.whole.totals[key] = fs
		}
	}
	b, err := os.ReadFile(filepath.Join(r.dir, "README.md"))
	r.whole.card = err != nil || len(b) == 0
	return nil
}

// ready refuses what the encoders of this machine cannot do, before the robot moves.
func (r *Recorder) ready(ctx context.Context) error {
	var row int64
	for i := range r.cfg.Features {
		f := &r.cfg.Features[i]
		switch {
		case f.Kind == robocache.KindVideo && (f.Depth == nil && f.Channels != 3 || f.Depth != nil && f.Channels != 1):
			return robocache.Unsupported(opRecord, robocache.Where{"stream": f.Key}, "video of other than 3 colour channels, or one of depth, is not recorded").
				WithHint(`grey images: declare dtype "image", which keeps them without loss`)
		case f.Kind == robocache.KindVideo:
			how, err := r.coding(f)
			if err != nil {
				return err
			}
			cfg := video.EncodeConfig{
				Codec:  video.Codec(how.Codec),
				Width:  f.Width,
				Height: f.Height,
				Rate:   r.cfg.FPS,
				Preset: how.Preset,
				Gray12: f.Depth != nil,
			}
			err = video.CanEncode(ctx, cfg)
			if cfg.Codec == "" && errors.Is(err, robocache.ErrUnsupported) {
				cfg.Codec, cfg.Preset = video.H264, ""
				if video.CanEncode(ctx, cfg) == nil {
					r.count.Replaced, err = err.Error(), nil
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
		row += int64(pixelBytes(f))
	}
	if row > r.count.QueueBytes {
		return robocache.Misuse(opRecord, nil, "queue_bytes").
			Expected(fmt.Sprintf("room for the images of one row, %d bytes", row), strconv.FormatInt(r.count.QueueBytes, 10))
	}
	return nil
}

// checkAllowed rejects keys of AllowNaN that are no features.
func (r *Recorder) checkAllowed() error {
	for _, key := range r.opt.AllowNaN {
		if key != "*" &&
			!slices.ContainsFunc(
				r.cfg.Features,
				func(f robocache.Feature) bool { return f.Key == key },
			) {
			return robocache.Misuse(opRecord, robocache.Where{"stream": key}, "allow_nan: no such feature").
				WithHint("name a declared feature, or pass %s", robocache.Option("allow_nan", true))
		}
	}
	return nil
}

// coding is that of a camera: the codec that it has in the dataset, which info.json tells of all
// its files. Depth has its own, which keeps every code; its preset is the one that a robot's loop
// can wait for.
func (r *Recorder) coding(f *robocache.Feature) (VideoConfig, error) {
	how := r.cfg.Video
	if f.Depth != nil {
		return VideoConfig{GOP: how.GOP, Preset: "ultrafast", Behind: how.Behind}, nil
	}
	if r.whole.Info == nil || f.Codec == "" {
		return how, nil
	}
	if c := how.Codec; c != "" && c != f.Codec {
		return VideoConfig{}, robocache.Misuse(opRecord, robocache.Where{"stream": f.Key}, "the dataset that is there has another codec").
			Expected(f.Codec, c).
			WithHint("leave video_codec out, or record into another folder")
	}
	how.Codec = f.Codec
	return how, nil
}

// pixelBytes is the size of an image as it is given; 0 of other features. Depth that becomes codes
// is given in its unit: metres are float32.
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

// GivenBytes is the size of a row of a feature as AddFrame takes it.
func GivenBytes(f *robocache.Feature) int { return cmp.Or(pixelBytes(f), f.RowBytes()) }

func (r *Recorder) openParts() error {
	st, err := store.OpenLocal(r.parts)
	if err != nil {
		return err
	}
	r.lib = video.NewLibrary(st.Open, 0)
	return nil
}

// Config is what is recorded: rate, features.
func (r *Recorder) Config() Config { return r.cfg }

// Counted says what was recorded, and how the queue stood.
func (r *Recorder) Counted() Recording {
	c := r.count
	c.Tasks = len(r.cfg.Tasks)
	if r.now != nil {
		c.Pending = r.now.rows
	}
	return c
}

// Close ends the recording: statistics become exact over all episodes, and nothing unfinished is
// left. Rows of an episode that was not saved are dropped.
func (r *Recorder) Close(ctx context.Context) (err error) {
	defer crash.Recover(opRecord, &err)
	defer robocache.LocateIn(&err, "dataset", r.dir)
	r.Discard()
	if r.lock == nil {
		return nil
	}
	if r.count.Episodes > 0 && !r.whole.exact {
		all, err := r.recount(ctx)
		if err != nil {
			return err
		}
		maps.Copy(all, r.frameStats(&r.whole))
		encoded, err := stats.Marshal(all)
		if err != nil {
			return err
		}
		if err := store.Put(ctx, r.dst, "meta/stats.json", encoded); err != nil {
			return err
		}
		r.whole.exact = true
		counts, err := r.whole.counts(r.count.Episodes)
		if err != nil {
			return err
		}
		if err := store.Put(ctx, r.dst, countsName, counts); err != nil {
			return err
		}
	}
	r.leave()
	return nil
}

// Abort lets go of the folder: what was saved stays, its quantiles are counted when the next
// recorder is closed.
func (r *Recorder) Abort() {
	r.Discard()
	r.leave()
}

func (r *Recorder) leave() {
	if r.stop != nil {
		r.stop()
	}
	if r.lib != nil {
		_ = r.lib.Close()
	}
	if r.lock != nil {
		_ = os.RemoveAll(r.own)
		_ = r.lock.Close()
	}
	if r.dst != nil {
		_ = r.dst.Close()
	}
	if r.made {
		_ = os.Remove(r.own) // where the lock was another's, it is not empty
		_ = os.Remove(r.dir) // where there is no episode
	}
	r.lock, r.dst, r.lib = nil, nil, nil
}

// closed is the error of a call after Close.
func (r *Recorder) closed() error {
	if r.lock == nil {
		return robocache.Misuse(opRecord, nil, "the Writer is closed").
			WithHint("make a new one: it goes on where this one ended")
	}
	return nil
}

// waited counts a row that waited for room.
func (r *Recorder) waited(since time.Time) {
	d := time.Since(since).Seconds()
	r.count.Waits++
	r.count.WaitSeconds += d
	r.count.LongestWait = max(r.count.LongestWait, d)
}
