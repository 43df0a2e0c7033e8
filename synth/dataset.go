package synth

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Dataset is a synthetic dataset that is generated when it is read. Writers, views and loaders are
// tested with it.
//
// Its rows are those of camera 0, or of observation.state if there is no camera. By default, every
// stream has these rows. With other rates, jitter, gaps or similar options, each other stream has
// its own clock, named by its key.
type Dataset struct {
	options Options
	fps     robocache.Rate
	info    robocache.Info
	offered robocache.Capabilities
	streams map[string]*stream
	lengths []int
	tasks   []int
	// NewRows: samples per row of the faster streams; nil = they have their own clocks
	rowWidth map[string]int
	preset   *preset // replaces the planar arm

	mu     sync.Mutex
	kept   map[int]*recording
	recent []int

	easels sync.Pool // *easel
}

// easel holds one canvas per camera.
type easel struct{ canvases []*canvas }

// stream is a feature, and how its rows are generated.
type stream struct {
	feature robocache.Feature
	// number of its clock (streams, or cameraStream + camera); 0 = the clock of the rows
	number  int
	rate    robocache.Rate                              // rate of its clock
	camera  int                                         // images: number of the camera
	numeric func(s *state, add func(values ...float64)) // nil: a stored column of the rows
}

// recording is an episode in memory.
type recording struct {
	*episode
	once    sync.Once
	err     error // error of generating it
	mu      sync.Mutex
	clocked map[string]*clocked
}

// clocked holds the times of a stream's samples, and their timestamps.
type clocked struct{ taken, timestamps []int64 }

const keptRecordings = 8

// New returns a dataset with the given options. The zero value is 4 episodes of 2 s, with two
// cameras of PNG images, all on one grid.
func New(opt Options) (*Dataset, error) { return newDataset(opt, false) }

// NewRows returns a dataset of the rows that Write writes, for formats with one clock. Faster
// streams are columns with each row's native samples and their recorded timestamps. Times returns
// the times of the rows. If the options need what rows cannot hold, the error is ErrMisuse.
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
		return nil, misuseError("codec", "png, jpeg or raw", strconv.Quote(opt.Codec))
	}
	if rows {
		if err := opt.checkFitsRows(); err != nil {
			return nil, err
		}
	}
	o, fps, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.checkCodeFits(); err != nil {
		return nil, err
	}
	d := &Dataset{options: o, fps: fps, streams: map[string]*stream{}, kept: map[int]*recording{}}
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
		if d.rowWidth, d.info.Findings, err = o.rowWidths(fps); err != nil {
			return nil, err
		}
	}
	if err := d.setSchema(); err != nil {
		return nil, err
	}
	for e := range o.Episodes {
		n := len(o.rowTimes(e, fps))
		text, _ := o.taskOf(e)
		d.lengths = append(d.lengths, n)
		d.tasks = append(d.tasks, text)
		d.info.Frames += int64(n)
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

// hasOwnClocks reports whether streams have their own clocks.
func (o *Options) hasOwnClocks() bool {
	return len(o.Rates) > 1 || o.isDistorted() || o.Late > 0 || o.Offset > 0 || o.Skew > 0 ||
		o.Dropout > 0
}

// setSchema sets the schema.
func (d *Dataset) setSchema() error {
	o := &d.options
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
	if d.rowWidth != nil {
		for _, f := range o.rowFeatures(d.rowWidth, d.fps) {
			s := stream{feature: f}
			if f.Kind == robocache.KindImage {
				for cameraKey(s.camera) != f.Key {
					s.camera++
				}
			}
			add(s)
		}
		return nil
	}
	for i := range o.Cameras {
		f := robocache.Feature{
			Key:      cameraKey(i),
			Kind:     robocache.KindImage,
			DType:    robocache.Uint8,
			Shape:    []int{o.Height, o.Width, 3},
			Names:    jsonNames("height", "width", "channels"),
			Height:   o.Height,
			Width:    o.Width,
			Channels: 3,
		}
		s := stream{feature: f, camera: i}
		if i > 0 && o.hasOwnClocks() {
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
					Names:    jsonNames("height", "width", "channels"),
					Height:   o.Height,
					Width:    o.Width,
					Channels: 1,
					Unit:     "mm",
				},
			},
		)
	}
	rows := Options{} // only the features of the rows
	for _, f := range rows.rowFeatures(nil, d.fps) {
		add(stream{feature: f})
	}
	for _, name := range o.otherStreams() {
		rate, err := rateOf(o.Rates[name])
		if err != nil {
			return err
		}
		switch name {
		case "cloud":
			f := numeric("observation.points", robocache.Float32, -1, 4)
			f.Kind, f.Names = robocache.KindPointCloud, jsonNames("x", "y", "z", "intensity")
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
	if o.hasOwnClocks() {
		d.info.Clock = "observation.state"
		if o.Cameras > 0 {
			d.info.Clock = cameraKey(0)
		}
	}
	return nil
}

// Options returns the options of the dataset, with defaults filled in.
func (d *Dataset) Options() Options { return d.options }

// Capabilities returns the capability of ragged rows.
func (d *Dataset) Capabilities() *robocache.Capabilities { return &d.offered }

// Info returns the description of the dataset.
func (d *Dataset) Info() *robocache.Info { return &d.info }

// Len returns the number of rows of an episode.
func (d *Dataset) Len(e int) int {
	if e < 0 || e >= len(d.lengths) {
		return 0
	}
	return d.lengths[e]
}

// Episode returns the description of an episode.
func (d *Dataset) Episode(_ context.Context, e int) (robocache.Episode, error) {
	if err := d.checkEpisode(e); err != nil {
		return robocache.Episode{}, err
	}
	return robocache.Episode{
		Position: e,
		Index:    int64(e),
		Length:   d.lengths[e],
		Tasks:    []string{d.options.Tasks[d.tasks[e]]},
	}, nil
}

func (d *Dataset) checkEpisode(e int) error {
	if e < 0 || e >= d.options.Episodes {
		return robocache.Misuse("synth", robocache.Where{"episode": e}, "").
			Expected(fmt.Sprintf("an episode from 0 to %d", d.options.Episodes-1), strconv.Itoa(e))
	}
	return nil
}

func (d *Dataset) streamOf(key string) (*stream, error) {
	s := d.streams[key]
	if s == nil {
		return nil, robocache.NotFound("synth", robocache.Where{"stream": key}, "no such stream")
	}
	return s, nil
}

// recordingOf returns an episode. It generates the episode if it is not in memory.
func (d *Dataset) recordingOf(e int) (*recording, error) {
	if err := d.checkEpisode(e); err != nil {
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
			d.recordPreset(r, e)
			return
		}
		r.episode, r.err = d.options.makeEpisode(e, d.fps, d.rowWidth)
	})
	return r, r.err
}

// clockOf returns the times of a stream in an episode.
func (d *Dataset) clockOf(r *recording, e int, s *stream) *clocked {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clocked[s.feature.Clock]
	if c == nil {
		c = &clocked{}
		if s.number == 0 {
			c.taken, c.timestamps = r.timestamps, r.timestamps
		} else {
			var taken []int64
			if s.number > cameraStream { // a camera loses the same frames as the rows
				taken = r.shots[s.camera]
			} else {
				taken = d.options.nativeClock(e, s.number, s.rate)
			}
			t := d.options.truthOf(e, s.number, s.rate)
			c.taken, c.timestamps = t.stampSamples(taken)
		}
		r.clocked[s.feature.Clock] = c
	}
	return c
}

// Truth returns how the clock of a stream is distorted in an episode.
func (d *Dataset) Truth(e int, key string) (Truth, error) {
	s, err := d.streamOf(key)
	if err == nil {
		err = d.checkEpisode(e)
	}
	if err != nil || s.number == 0 {
		return Truth{Rate: d.fps}, err
	}
	return d.options.truthOf(e, s.number, s.rate), nil
}

// Times returns the timestamps of a stream.
func (d *Dataset) Times(_ context.Context, e int, key string) ([]int64, error) {
	s := &stream{}
	if key != "" {
		var err error
		if s, err = d.streamOf(key); err != nil {
			return nil, err
		}
	}
	if d.preset != nil && d.preset.times != nil { // does not generate the values
		return d.preset.times(&d.options, e), d.checkEpisode(e)
	}
	r, err := d.recordingOf(e)
	if err != nil {
		return nil, err
	}
	return slices.Clone(d.clockOf(r, e, s).timestamps), nil
}

// Stats returns nil.
func (d *Dataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close does nothing.
func (d *Dataset) Close() error { return nil }
