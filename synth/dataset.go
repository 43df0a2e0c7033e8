package synth

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Dataset is a synthetic dataset that is made while it is read: what writers, views and loaders are
// tested with.
//
// Its rows are those of camera 0 (of observation.state where there is none). Without rates beside
// the camera's, jitter, gaps and the like, every stream lies on them; else each other stream has a
// clock of its own, named by its key.
type Dataset struct {
	o       Options
	fps     robocache.Rate
	info    robocache.Info
	offered robocache.Capabilities
	streams map[string]*stream
	lengths []int
	tasks   []int
	// NewRows: of the streams beside the rows; nil = they have clocks of their own
	width  map[string]int
	preset *preset // in place of the planar arm

	mu     sync.Mutex
	kept   map[int]*recording
	recent []int

	easels sync.Pool // *easel
}

// easel holds a canvas a camera.
type easel struct{ canvases []*canvas }

// stream is a feature and how its rows are made.
type stream struct {
	feature robocache.Feature
	// of its clock (streams, cameraStream + camera); 0 = the rows'
	number  int
	rate    robocache.Rate                              // of its clock
	camera  int                                         // images: which
	numeric func(s *state, add func(values ...float64)) // nil: a column of the rows
}

// recording is an episode in memory.
type recording struct {
	*episode
	once    sync.Once
	err     error // of making it
	mu      sync.Mutex
	clocked map[string]*clocked
}

// clocked is when a stream's samples were taken, and their timestamps.
type clocked struct{ taken, timestamps []int64 }

const keptRecordings = 8

// New makes a dataset of the options. The zero value is 4 episodes of 2 s, two cameras of PNG
// images, all on one grid.
func New(opt Options) (*Dataset, error) { return newDataset(opt, false) }

// NewRows makes a dataset of the rows that Write writes, for formats that keep one clock: streams
// beside the rows are columns of each row's native samples, with their recorded timestamps. Times
// gives those of the rows. ErrMisuse where the options ask for what rows cannot hold.
func NewRows(opt Options) (*Dataset, error) { return newDataset(opt, true) }

func newDataset(opt Options, rows bool) (*Dataset, error) {
	if opt.Preset != "" {
		return newPreset(opt)
	}
	switch opt.Codec {
	case "":
		opt.Codec = "png"
	case "png", "jpeg", "raw":
	default:
		return nil, misuse("codec", "png, jpeg or raw", strconv.Quote(opt.Codec))
	}
	if rows {
		if err := opt.fitsRows(); err != nil {
			return nil, err
		}
	}
	o, fps, err := opt.completed()
	if err != nil {
		return nil, err
	}
	if err := o.room(); err != nil {
		return nil, err
	}
	d := &Dataset{o: o, fps: fps, streams: map[string]*stream{}, kept: map[int]*recording{}}
	d.offered = robocache.Capabilities{GatherRagged: d.GatherRagged}
	d.info = robocache.Info{
		URI:      fmt.Sprintf("synth:%d", o.Seed),
		Format:   "synth",
		Version:  "1",
		Robot:    o.Robot,
		FPS:      fps,
		Episodes: o.Episodes,
	}
	for i, text := range o.Tasks {
		d.info.Tasks = append(d.info.Tasks, robocache.Task{Index: int64(i), Text: text})
	}
	if rows {
		if d.width, d.info.Findings, err = o.widths(fps); err != nil {
			return nil, err
		}
	}
	if err := d.describe(); err != nil {
		return nil, err
	}
	for e := range o.Episodes {
		n := len(o.rows(e, fps))
		text, _ := o.task(e)
		d.lengths = append(d.lengths, n)
		d.tasks = append(d.tasks, text)
		d.info.Frames = d.info.Frames + int64(n)
	}
	d.easels.New = func() any {
		x := &easel{}
		for i := range o.Cameras {
			x.canvases = append(x.canvases, newCanvas(i, o.Width, o.Height))
		}
		return x
	}
	return d, nil
}

// native says that streams have clocks of their own.
func (o *Options) native() bool {
	return len(o.Rates) > 1 || o.recorded() || o.Late > 0 || o.Offset > 0 || o.Skew > 0 ||
		o.Dropout > 0
}

// describe makes the schema.
func (d *Dataset) describe() error {
	o := &d.o
	add := func(s stream) {
		if s.rate.Zero() {
			s.rate = d.fps
		}
		if s.number != 0 {
			s.feature.Clock = s.feature.Key
		}
		s.feature.FPS = s.rate
		d.info.Features = append(d.info.Features, s.feature)
		d.streams[s.feature.Key] = &s
	}
	numeric := func(key string, t robocache.DType, shape ...int) robocache.Feature {
		return robocache.Feature{Key: key, Kind: robocache.KindNumeric, DType: t, Shape: shape}
	}
	if d.width != nil {
		for _, f := range o.features(d.width, d.fps) {
			s := stream{feature: f}
			if f.Kind == robocache.KindImage {
				for camera(s.camera) != f.Key {
					s.camera++
				}
			}
			add(s)
		}
		return nil
	}
	for i := range o.Cameras {
		f := robocache.Feature{
			Key:      camera(i),
			Kind:     robocache.KindImage,
			DType:    robocache.Uint8,
			Shape:    []int{o.Height, o.Width, 3},
			Names:    names("height", "width", "channels"),
			Height:   o.Height,
			Width:    o.Width,
			Channels: 3,
		}
		s := stream{feature: f, camera: i}
		if i > 0 && o.native() {
			s.number = cameraStream + i
		}
		add(s)
	}
	if o.Depth && o.Cameras > 0 {
		add(
			stream{
				feature: robocache.Feature{
					Key:      depthKey,
					Kind:     robocache.KindImage,
					DType:    robocache.Uint16,
					Shape:    []int{o.Height, o.Width, 1},
					Names:    names("height", "width", "channels"),
					Height:   o.Height,
					Width:    o.Width,
					Channels: 1,
					Unit:     "mm",
				},
			},
		)
	}
	rows := Options{} // the features of the rows alone
	for _, f := range rows.features(nil, d.fps) {
		add(stream{feature: f})
	}
	for _, name := range o.others() {
		rate, err := rateOf(o.Rates[name])
		if err != nil {
			return err
		}
		switch name {
		case "cloud":
			f := numeric("observation.points", robocache.Float32, -1, 4)
			f.Kind, f.Names = robocache.KindPointCloud, names("x", "y", "z", "intensity")
			add(stream{feature: f, number: streams[name], rate: rate})
		case "text":
			f := numeric("observation.phase", robocache.String, 1)
			f.Kind = robocache.KindText
			add(stream{feature: f, number: streams[name], rate: rate})
		default:
			n := natives[name]
			add(
				stream{
					feature: numeric(n.key, robocache.Float32, n.d),
					number:  streams[name],
					rate:    rate,
					numeric: func(s *state, add func(...float64)) { add(n.sample(s)...) },
				},
			)
		}
	}
	if o.native() {
		d.info.Clock = "observation.state"
		if o.Cameras > 0 {
			d.info.Clock = camera(0)
		}
	}
	return nil
}

// Options are those of the dataset, settled.
func (d *Dataset) Options() Options { return d.o }

// Capabilities returns the capability of ragged rows.
func (d *Dataset) Capabilities() *robocache.Capabilities { return &d.offered }

// Info describes the dataset.
func (d *Dataset) Info() *robocache.Info { return &d.info }

// Len is the number of rows.
func (d *Dataset) Len(e int) int {
	if e < 0 || e >= len(d.lengths) {
		return 0
	}
	return d.lengths[e]
}

// Episode is what is known of an episode.
func (d *Dataset) Episode(_ context.Context, e int) (robocache.Episode, error) {
	if err := d.check(e); err != nil {
		return robocache.Episode{}, err
	}
	return robocache.Episode{
		Position: e,
		Index:    int64(e),
		Length:   d.lengths[e],
		Tasks:    []string{d.o.Tasks[d.tasks[e]]},
	}, nil
}

func (d *Dataset) check(e int) error {
	if e < 0 || e >= d.o.Episodes {
		return robocache.Misuse("synth", robocache.Where{"episode": e}, "").
			Expected(fmt.Sprintf("an episode from 0 to %d", d.o.Episodes-1), strconv.Itoa(e))
	}
	return nil
}

func (d *Dataset) find(key string) (*stream, error) {
	s := d.streams[key]
	if s == nil {
		return nil, robocache.NotFound("synth", robocache.Where{"stream": key}, "no such stream")
	}
	return s, nil
}

// recording finds or makes an episode.
func (d *Dataset) recording(e int) (*recording, error) {
	if err := d.check(e); err != nil {
		return nil, err
	}
	d.mu.Lock()
	r := d.kept[e]
	if r == nil {
		r = &recording{clocked: map[string]*clocked{}}
		d.kept[e], d.recent = r, append(d.recent, e)
		if len(d.recent) > keptRecordings {
			delete(d.kept, d.recent[0])
			d.recent = d.recent[1:]
		}
	}
	d.mu.Unlock()
	r.once.Do(func() {
		if d.preset != nil {
			d.record(r, e)
			return
		}
		r.episode, r.err = d.o.episode(e, d.fps, d.width)
	})
	return r, r.err
}

// clock gives a stream's times in an episode.
func (d *Dataset) clock(r *recording, e int, s *stream) *clocked {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clocked[s.feature.Clock]
	if c == nil {
		c = &clocked{}
		if s.number == 0 {
			c.taken, c.timestamps = r.timestamps, r.timestamps
		} else {
			var taken []int64
			if s.number > cameraStream { // a camera loses the frames that the rows lose
				taken = r.shots[s.camera]
			} else {
				taken = d.o.nativeClock(e, s.number, s.rate)
			}
			t := d.o.bend(e, s.number, s.rate)
			c.taken, c.timestamps = t.stamped(taken)
		}
		r.clocked[s.feature.Clock] = c
	}
	return c
}

// Truth says how the clock of a stream was bent in an episode.
func (d *Dataset) Truth(e int, key string) (Truth, error) {
	s, err := d.find(key)
	if err == nil {
		err = d.check(e)
	}
	if err != nil || s.number == 0 {
		return Truth{Rate: d.fps}, err
	}
	return d.o.bend(e, s.number, s.rate), nil
}

// Times gives the timestamps of a stream.
func (d *Dataset) Times(_ context.Context, e int, key string) ([]int64, error) {
	s := &stream{}
	if key != "" {
		var err error
		if s, err = d.find(key); err != nil {
			return nil, err
		}
	}
	if d.preset != nil && d.preset.times != nil { // without the values
		return d.preset.times(&d.o, e), d.check(e)
	}
	r, err := d.recording(e)
	if err != nil {
		return nil, err
	}
	return slices.Clone(d.clock(r, e, s).timestamps), nil
}

// Stats are none.
func (d *Dataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close does nothing.
func (d *Dataset) Close() error { return nil }
