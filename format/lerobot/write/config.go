package write

import (
	"cmp"
	"encoding/json"
	"math"
	"runtime"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// Config is what a Writer must know before the first episode. Zero values are the reference's defaults.
type Config struct {
	FPS   robocache.Rate
	Robot string
	// Features in the order in which they are declared; the five bookkeeping features (timestamp, frame_index,
	// episode_index, index, task_index) are added by the writer and are left out here.
	Features []robocache.Feature
	// Tasks that must keep their number: task i is Tasks[i]. Others follow in the order of their first row.
	Tasks []string

	ChunksSize     int   // files in a chunk folder; 0 = 1000
	DataFileBytes  int64 // a data or episodes file is ended before it would grow beyond; 0 = 100 MiB
	VideoFileBytes int64 // the same for each camera's mp4; 0 = 200 MiB. An mp4 also ends where more than 256 files would be open together while it is made

	// Video is how frames that come as pixels are encoded. Stream-copied parts keep their coding.
	Video VideoConfig
	// TempDir holds one mp4 for each encoded episode until it is joined; "" = the system's.
	TempDir string
	// Encoders is how many run at once; 0 = the number of CPUs. More than that slow each other down.
	Encoders int
	// PartsDir keeps the encoded episodes in a folder of the caller's until all are joined, and takes over those that it holds already: of an
	// interrupted run over the same episodes with the same configuration. "" = they are removed as soon as they are joined.
	PartsDir string
	// Frames says which frames the writer looks at for statistics; "" = sampled, as the reference does.
	Frames stats.FramePolicy
	// StatsBudget bounds the memory that the statistics take, in bytes; 0 = 256 MiB.
	StatsBudget int64
	// Splits are ranges of episodes by name ("0:40"); the map may be filled until Close. nil: train, of all.
	Splits map[string]string
	// Extra files, written before info.json: name → bytes (meta/modality.json).
	Extra map[string][]byte
	// Reuse says that the store already has the mp4 at name, made of exactly the parts that key names, so that it need not be made
	// again; Made tells of a new one. A resumed conversion keeps its journal through them.
	Reuse func(name, key string) bool
	Made  func(name, key string) error
}

// VideoConfig chooses the coding of new colour video; depth is always lossless 12-bit HEVC. Zero values are video.EncodeConfig's.
type VideoConfig struct {
	Codec  string // "av1" (default), "h264", "hevc"
	GOP    int
	CRF    int
	Preset string
}

// EpisodeData is one episode. Rows are in time order; every feature of the config is present, exactly once.
type EpisodeData struct {
	Length  int
	Columns map[string][]byte   // numeric features: Length rows, little-endian, C order
	Text    map[string][]string // text features; event features as JSON, one value a row
	Images  map[string][][]byte // image features: PNG, JPEG or TIFF bytes of each row
	Videos  map[string]VideoPart
	// Tasks has one text a row, or one for all rows.
	Tasks []string
	// Listed are the texts that the episode's entry names besides those of its rows.
	Listed []string
	// Frames holds what was counted of the frames of image and video features; nil entries are counted by the writer where it sees
	// pixels, and have no statistics where it does not.
	FrameStats map[string]*stats.Pixels
	prepared   *preparedEpisode // Prepare was here
}

// VideoPart is where an episode's frames of one camera come from: a range of a video file, or pixels.
type VideoPart struct {
	Library *video.Library
	Path    string
	From    int // frames [From, From+Length)
	// Frames gives the frames one by one: RGB, 8 bits, channels last; depth: 16 bits, little-endian. It is used where Library is nil.
	Frames func(yield func(pic []byte) error) error
}

const (
	outMiB              = 1 << 20
	defaultChunksSize   = 1000
	defaultDataBytes    = 100 * outMiB
	defaultVideoBytes   = 200 * outMiB
	defaultStatsBudget  = 256 * outMiB
	maxFileNumber       = 999 // the reference sorts file names as text: file-1000 would come before file-999
	defaultDataPath     = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
	defaultVideoPath    = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
	writtenVersion      = "v3.0"
	writerIdentity      = "robocache"
	writerFormatVersion = "1"
)

// Bookkeeping are the columns of every LeRobot dataset, which end the list of its features.
var Bookkeeping = []robocache.Feature{
	{Key: "timestamp", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{1}, Default: true},
	{Key: "frame_index", Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}, Default: true},
	{Key: "episode_index", Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}, Default: true},
	{Key: "index", Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}, Default: true},
	{Key: "task_index", Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}, Default: true},
}

func (c *Config) validate() error {
	misuse := func(key, format string) error {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Where: robocache.Where{"stream": key}, Msg: format}
	}
	if c.FPS.Num <= 0 || c.FPS.Den <= 0 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Want: "a rate > 0", Got: "none", Hint: "give the frames a second of the dataset"}
	}
	c.ChunksSize = cmp.Or(c.ChunksSize, defaultChunksSize)
	if c.ChunksSize < 0 || c.ChunksSize > maxFileNumber+1 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "chunks_size", Want: "1 to 1000", Got: jsonText(c.ChunksSize)}
	}
	for to, usual := range map[*int64]int64{&c.DataFileBytes: defaultDataBytes, &c.VideoFileBytes: defaultVideoBytes, &c.StatsBudget: defaultStatsBudget} {
		if *to <= 0 {
			*to = usual
		}
	}
	if c.Encoders <= 0 {
		c.Encoders = runtime.GOMAXPROCS(0)
	}
	seen := map[string]bool{}
	for _, f := range Bookkeeping {
		seen[f.Key] = true
	}
	for i := range c.Features {
		f := &c.Features[i]
		if seen[f.Key] {
			return misuse(f.Key, "declared twice, or a bookkeeping feature that the writer adds itself")
		}
		seen[f.Key] = true
		if f.Key == "" || strings.ContainsAny(f.Key, "/\x00") || f.Key == "task" {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "write lerobot", Where: robocache.Where{"stream": f.Key}, Msg: "a feature's name may not be empty, hold '/' or NUL, or be 'task'", Hint: "rename the stream"}
		}
		for _, d := range f.Shape {
			if d <= 0 {
				return misuse(f.Key, "a shape with an axis of length 0")
			}
		}
		if f.Kind == robocache.KindVideo && (strings.HasPrefix(f.Key, ".") || strings.ContainsAny(f.Key, "\\")) {
			return misuse(f.Key, "the name of a camera is the name of a folder: no leading dot, no backslash")
		}
		if _, err := nodeOf(f); err != nil {
			return err
		}
	}
	return nil
}

// CanWrite says why a feature cannot be written; nil where it can.
func CanWrite(f robocache.Feature) error {
	c := Config{FPS: robocache.Rate{Num: 1, Den: 1}, Features: []robocache.Feature{f}}
	return c.validate()
}

func jsonText(v any) string { b, _ := json.Marshal(v); return string(b) }

// megabytes is a threshold as info.json states it: whole MiB, at least 1.
func megabytes(b int64) int64 { return max(1, int64(math.Ceil(float64(b)/outMiB))) }
