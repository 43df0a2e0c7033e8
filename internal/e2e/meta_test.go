package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/stats"
)

const lfs = "version https://git-lfs.github.com/spec/v1\noid " +
	"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

// e2e.C3: contents of info.json and the expected results.
func TestBadInfo(t *testing.T) {
	base := load(t, small)
	js := string(base[info])
	mal := robocache.ErrMalformed
	set := func(old, new string) []byte {
		if !strings.Contains(js, old) {
			t.Fatalf("info.json has no %q", old)
		}
		return []byte(strings.Replace(js, old, new, 1))
	}
	data, vid := `"data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"`, `"videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"`
	for _, c := range []struct {
		name string
		json []byte
		outcome
	}{
		{"fps 0", set(`"fps": 30`, `"fps": 0`), outcome{mal, info + "|/fps", ""}},
		{"fps -30", set(`"fps": 30`, `"fps": -30`), outcome{mal, info + "|/fps", ""}},
		{"fps 1e308", set(`"fps": 30`, `"fps": 1e308`), outcome{mal, info + "|/fps", ""}},
		{"fps 1e-308", set(`"fps": 30`, `"fps": 1e-308`), outcome{mal, info + "|/fps", ""}},
		{"fps NaN", set(`"fps": 30`, `"fps": NaN`), outcome{mal, info, ""}},
		{"fps list", set(`"fps": 30`, `"fps": [30]`), outcome{mal, info + "|/fps", ""}},
		{"fps absent", set(`"fps": 30,`, ``), outcome{mal, info + "|/fps", ""}},
		{"fps text", set(`"fps": 30`, `"fps": "30"`), outcome{nil, "", "fps-type"}},
		{"fps 30.0", set(`"fps": 30`, `"fps": 30.0`), outcome{nil, "", ""}},
		{"fps 29.97", set(`"fps": 30`, `"fps": 29.97`), outcome{nil, "", ""}},
		{
			"total_episodes more",
			set(`"total_episodes": 66`, `"total_episodes": 1000`),
			outcome{nil, "", "total-differs"},
		},
		{
			"total_episodes 2^60",
			set(`"total_episodes": 66`, `"total_episodes": 1152921504606846976`),
			outcome{nil, "", "total-differs"},
		},
		{
			"total_episodes 1e300",
			set(`"total_episodes": 66`, `"total_episodes": 1e300`),
			outcome{nil, "", "metadata-type"},
		},
		{
			"total_episodes negative",
			set(`"total_episodes": 66`, `"total_episodes": -66`),
			outcome{nil, "", "metadata-type"},
		},
		{
			"total_frames lies",
			set(`"total_frames": 1254`, `"total_frames": 1255`),
			outcome{nil, "", "total-differs"},
		},
		{"chunks_size 0", set(`"chunks_size": 1000`, `"chunks_size": 0`), outcome{nil, "", ""}},
		{"splits lie", set(`"0:66"`, `"0:100"`), outcome{nil, "", "split-differs"}},
		{"splits of another type", set(`{
        "train": "0:66"
    }`, `[1, 2]`), outcome{nil, "", ""}},
		{"data_path up", set(data, `"../../etc/passwd"`), outcome{mal, info + "|/data_path", ""}},
		{
			"data_path up inside",
			set(data, `"data/../../secret/file-{file_index:03d}.parquet"`),
			outcome{mal, info + "|/data_path", ""},
		},
		{"data_path absolute", set(data, `"/etc/passwd"`), outcome{mal, info + "|/data_path", ""}},
		{
			"data_path NUL",
			set(data, `"data\u0000/file.parquet"`),
			outcome{mal, info + "|/data_path", ""},
		},
		{"data_path number", set(data, `7`), outcome{mal, info + "|/data_path", ""}},
		{
			"data_path other variable",
			set(data, `"data/chunk-{__class__}/file-{file_index:03d}.parquet"`),
			outcome{mal, info + "|/data_path", ""},
		},
		{
			"data_path width 2^40",
			set(data, `"data/chunk-{chunk_index:01099511627776d}/file-{file_index:03d}.parquet"`),
			outcome{mal, info + "|/data_path", ""},
		},
		{
			"data_path 1 MB",
			set(data, `"data/`+strings.Repeat("x", 1<<20)+`/file-{file_index:03d}.parquet"`),
			outcome{mal, info + "|/data_path", ""},
		},
		{
			"data_path backslash",
			set(data, `"..\\..\\secret"`),
			outcome{mal, info + "|/data_path", ""},
		},
		{
			"video_path up",
			set(vid, `"videos/{video_key}/../../../secret/file-{file_index:03d}.mp4"`),
			outcome{mal, info + "|/video_path", ""},
		},
		{
			"video_path absolute",
			set(vid, `"/{video_key}/file-{file_index:03d}.mp4"`),
			outcome{mal, info + "|/video_path", ""},
		},
		{
			"video_path url",
			set(vid, `"http://169.254.169.254/{video_key}.mp4"`),
			outcome{nil, "", "path-template"},
		},
		{"video_path pipe", set(vid, `"pipe:cat /etc/passwd"`), outcome{nil, "", "path-template"}},
		{"video_path null", set(vid, `null`), outcome{nil, "", ""}},
		{
			"key climbs",
			bytes.ReplaceAll(base[info], []byte(camera), []byte("../../../../etc")),
			outcome{nil, "", "feature-dropped"},
		},
		{
			"shape 2^60",
			set(
				"\"shape\": [\n                26\n            ]",
				`"shape": [1152921504606846976]`,
			),
			outcome{mal, info + "|/shape", ""},
		},
		{
			"shape product 2^64",
			set(
				"\"shape\": [\n                26\n            ]",
				`"shape": [4294967296, 4294967296]`,
			),
			outcome{mal, info + "|/shape", ""},
		},
		{
			"shape 2^30",
			set("\"shape\": [\n                26\n            ]", `"shape": [1073741824]`),
			outcome{mal, info + "|/shape", ""},
		},
		{
			"shape negative",
			set("\"shape\": [\n                26\n            ]", `"shape": [-26]`),
			outcome{mal, info + "|/shape", ""},
		},
		{
			"shape other",
			set("\"shape\": [\n                26\n            ]", `"shape": [27]`),
			outcome{mal, info + "|27|26|observation.state", ""},
		},
		{
			"key twice",
			set(`"fps": 30,`, `"fps": 30, "fps": 60,`),
			outcome{mal, info + "|twice", ""},
		},
		{
			"feature twice",
			set(`"action": {`, `"action": {"dtype": "float32", "shape": [1]}, "action": {`),
			outcome{mal, info + "|twice", ""},
		},
		{
			"key twice inside a feature",
			set("\"dtype\": \"float32\",", "\"dtype\": \"float32\", \"dtype\": \"float32\","),
			outcome{mal, info + "|twice|dtype", ""},
		},
		{"BOM", append([]byte("\xef\xbb\xbf"), js...), outcome{nil, "", ""}},
		{"UTF-16", []byte("\xff\xfe{\x00}\x00"), outcome{mal, info, ""}},
		{
			"deep",
			set(`"robot_type"`, `"x": `+strings.Repeat("[", 1_000_000)+
				strings.Repeat("]", 1_000_000)+`, "robot_type"`),
			outcome{mal, info + "|nested", ""},
		},
		{
			"deep objects",
			set(`"robot_type"`, `"x": `+strings.Repeat(`{"a":`, 300)+"1"+strings.Repeat("}", 300)+
				`, "robot_type"`),
			outcome{mal, info + "|nested", ""},
		},
		{"unclosed", []byte(strings.Repeat("[", 100)), outcome{mal, info, ""}},
		{"empty", []byte{}, outcome{mal, info, ""}},
		{"blank", []byte(" \n\t "), outcome{mal, info, ""}},
		{"null", []byte("null"), outcome{mal, info, ""}},
		{"list", []byte("[]"), outcome{mal, info, ""}},
		{"empty object", []byte("{}"), outcome{mal, info, ""}},
		{"trailing", append([]byte(js), "}{"...), outcome{mal, info, ""}},
		{"LFS pointer", []byte(lfs), outcome{mal, info + "|LFS", ""}},
		{
			"10^6 keys",
			set(`"robot_type"`, manyKeys(1_000_000)+`"robot_type"`),
			outcome{robocache.ErrResourceLimit, info + "|keys", ""},
		},
		{"not UTF-8", set("Unitree", "\xff\xfeUnitree"), outcome{nil, "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			uri := base.with(info, c.json).mem(t)
			var err error
			bounded(t, 256<<20, func() { err = read(t.Context(), uri) })
			sound(t, err)
			switch {
			case c.class == nil && err != nil:
				t.Errorf("readable, but: %v", err)
			case c.class != nil && err == nil:
				t.Errorf("no error; wanted %v", c.class)
			case c.class != nil:
				want(t, err, c.class, strings.Split(c.words, "|")...)
			}
			if err == nil {
				ds := open(t, uri)
				if c.codes != "" && codes(ds)[c.codes] == 0 {
					t.Errorf("no finding %s, but %v", c.codes, codes(ds))
				}
				if n := ds.Info().Episodes; n != 66 {
					t.Errorf("%d episodes", n)
				}
			}
			if err != nil && len(err.Error()) > 4000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	return b.String()
}

// e2e.C3: a shape that is valid but absurdly large gives an error, without an allocation of that
// size.
func TestAbsurdShape(t *testing.T) {
	base := load(t, small)
	for _, shape := range []string{"1073741824", "65536, 65536", "4611686018427387904, 0"} {
		t.Run(shape, func(t *testing.T) {
			uri := base.edit(
				t,
				info,
				"\"shape\": [\n                26\n            ]",
				`"shape": [`+shape+`]`,
			).
				mem(t)
			for what, use := range map[string]func(ds robocache.Dataset) error{
				"loader": func(ds robocache.Dataset) error {
					_, _, err := digest(
						t.Context(),
						ds,
						loader.Config{
							Windows: loader.Windows{Keys: []string{"observation.state"}},
							Runtime: loader.Runtime{MemoryBudget: 64 << 20},
						},
					)
					return err
				},
				"map": func(ds robocache.Dataset) error {
					m, err := loader.NewMap(
						t.Context(),
						ds,
						loader.Config{
							Windows: loader.Windows{Keys: []string{"observation.state"}},
							Runtime: loader.Runtime{MemoryBudget: 64 << 20},
						},
					)
					if err != nil {
						return err
					}
					defer m.Close()
					b, err := m.Items(t.Context(), []int64{5})
					if err == nil {
						b.Release()
					}
					return err
				},
				"stats": func(ds robocache.Dataset) error {
					_, err := stats.Compute(t.Context(), ds, stats.Options{})
					return err
				},
				"convert": func(ds robocache.Dataset) error {
					_, err := toLeRobot(
						t.Context(),
						ds,
						filepath.Join(t.TempDir(), "out"),
						convert.Options{},
						nil,
					)
					return err
				},
			} {
				var err error
				bounded(t, 256<<20, func() {
					var ds robocache.Dataset
					if ds, err = robocache.Open(t.Context(), uri, robocache.OpenOptions{}); err ==
						nil {
						defer ds.Close()
						err = use(ds)
					}
				})
				sound(t, err)
				if err == nil {
					t.Errorf("%s: no error", what)
				}
				t.Logf("%s: %v", what, err)
			}
		})
	}
}

// e2e.C3: the same for the lines of a v2 set.
func TestBadLines(t *testing.T) {
	base := load(t, "gr00t_picknplace_v20")
	lines := string(base["meta/episodes.jsonl"])
	mal := robocache.ErrMalformed
	const name = "meta/episodes.jsonl"
	for _, c := range []struct {
		what string
		text string
		outcome
	}{
		{"cut line", lines[:len(lines)-20], outcome{mal, name + "|line 5", ""}},
		{
			"length 2^60",
			strings.Replace(lines, `"length": 470`, `"length": 1152921504606846976`, 1),
			outcome{nil, "", "episode-length"},
		},
		{
			"length negative",
			strings.Replace(lines, `"length": 470`, `"length": -1`, 1),
			outcome{nil, "", "episode-length"},
		},
		{
			"length text",
			strings.Replace(lines, `"length": 470`, `"length": "470"`, 1),
			outcome{mal, name + "|line", ""},
		},
		{
			"length lies",
			strings.Replace(lines, `"length": 470`, `"length": 471`, 1),
			outcome{nil, "", "episode-length"},
		},
		{
			"index twice",
			strings.Replace(lines, `"episode_index": 1`, `"episode_index": 0`, 1),
			outcome{robocache.ErrMisuse, name + "|twice", ""},
		},
		{
			"index negative",
			strings.Replace(lines, `"episode_index": 1`, `"episode_index": -1`, 1),
			outcome{mal, name + "|line", ""},
		},
		{"blank lines and CRLF", strings.ReplaceAll(lines, "\n", "\r\n\r\n"), outcome{nil, "", ""}},
		{"deep", lines + strings.Repeat("[", 1_000_000), outcome{mal, name, ""}},
		{"zero bytes", "", outcome{mal, name, ""}},
		{"LFS pointer", lfs, outcome{mal, name + "|LFS", ""}},
		{"NUL", strings.Replace(lines, "{", "\x00{", 1), outcome{mal, name + "|line 1", ""}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.text == lines {
				t.Fatal("nothing was altered")
			}
			uri := base.with(name, []byte(c.text)).mem(t)
			var err error
			bounded(t, 512<<20, func() { err = read(t.Context(), uri) })
			sound(t, err)
			switch {
			case c.class == nil && err != nil:
				t.Errorf("readable, but: %v", err)
			case c.class != nil && err == nil:
				t.Error("no error")
			case c.class != nil:
				want(t, err, c.class, strings.Split(c.words, "|")...)
			}
			if c.codes != "" && err == nil {
				if ds := open(t, uri); codes(ds)[c.codes] == 0 {
					t.Errorf("no finding %s, but %v", c.codes, codes(ds))
				}
			}
		})
	}
}

// e2e.C3: each file is truncated at many positions, emptied, or replaced by an LFS pointer or
// noise. The result is the right data or a typed error, never other data.
func TestCutFiles(t *testing.T) {
	decoders(t)
	base := load(t, small)
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 19, Episodes: []int{0, 65}},
		Windows: loader.Windows{Keys: []string{"action", camera, "task", "index"}},
	}
	truth, _, err := digest(t.Context(), open(t, base.mem(t)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, tr tree) (string, error) {
		uri := tr.mem(t)
		var sum string
		var err error
		bounded(t, 200<<20, func() {
			var ds robocache.Dataset
			if ds, err = robocache.Open(t.Context(), uri, robocache.OpenOptions{}); err == nil {
				defer ds.Close()
				sum, _, err = digest(t.Context(), ds, cfg)
			}
		})
		return sum, err
	}
	optional := map[string]bool{"meta/stats.json": true} // only Stats needs it
	t.Run("stats", func(t *testing.T) {
		for n := 0; n < len(base["meta/stats.json"])-1; n += 1000 {
			_, err := open(
				t,
				base.with("meta/stats.json", base["meta/stats.json"][:n]).mem(t),
			).Stats(t.Context())
			want(t, err, robocache.ErrMalformed, "meta/stats.json")
		}
	})
	for name, data := range base {
		t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) {
			places := 40
			if testing.Short() {
				places = 8
			}
			right := 0
			for i := range places {
				// half of the positions over the whole file, half near its end and its beginning
				n := i * len(data) / places
				switch {
				case i%4 == 1:
					n = len(data) - 1 - i*i
				case i%4 == 3:
					n = i
				}
				sum, err := run(t, base.with(name, data[:max(n, 0)]))
				sound(t, err)
				if err == nil {
					if right++; sum != truth {
						t.Fatalf("cut at %d of %d: other data without an error", n, len(data))
					}
				} else if !strings.Contains(err.Error(), strings.Split(name, "/")[0]) {
					t.Errorf("cut at %d: the file is not named: %v", n, err)
				}
			}
			t.Logf("%d cuts, %d of them do not matter", places, right)
			noise := bytes.Repeat([]byte("\x8f\x00\xff\x7f\x01"), len(data)/5+1)
			for what, b := range map[string][]byte{
				"zero bytes":  {},
				"LFS pointer": []byte(lfs),
				"noise":       noise,
				"zeros":       make([]byte, len(data)),
				"twice":       append(bytes.Clone(data), data...),
			} {
				sum, err := run(t, base.with(name, b))
				sound(t, err)
				switch {
				case err == nil && sum != truth:
					t.Errorf("%s: other data without an error", what)
				case err == nil && !optional[name] && what != "twice":
					t.Errorf("%s: no error", what)
				case err != nil && what == "LFS pointer" && !strings.Contains(err.Error(), "LFS"):
					t.Errorf("LFS pointer: the message does not say so: %v", err)
				}
			}
			// A camera without files is not delivered, and requesting it is an error.
			if _, err := run(t, base.with(name, nil)); err != nil &&
				!errors.Is(err, robocache.ErrNotFound) && !(name == mp4 &&
				strings.Contains(err.Error(), camera+": the stream is declared")) &&
				!strings.Contains(err.Error(), name) {
				t.Errorf("missing: %v", err)
			} else if err == nil &&
				!optional[name] {
				t.Error("missing: no error")
			}
		})
	}
}

// e2e.C3: bytes are flipped in headers and footers, or replaced by runs of 0xff (the largest
// varints and counts) or zeros. There is no panic, no hang and no large allocation.
func TestFlippedBytes(t *testing.T) {
	decoders(t)
	base := load(t, small)
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 19, Episodes: []int{0}},
		Windows: loader.Windows{Keys: []string{"action", camera, "task"}},
		Runtime: loader.Runtime{Deadline: 15},
	}
	for _, c := range []struct {
		name     string
		from, to int // negative: from the end
		steps    int
	}{
		{mp4, 0, 24 << 10, 150},    // ftyp and moov (faststart)
		{table, -24 << 10, 0, 150}, // the footer
		{table, 0, 3 << 10, 60},    // pages of the first row group
		{eptab, -24 << 10, 0, 100},
		{eptab, 0, 2 << 10, 60},
		{"meta/tasks.parquet", 0, 0, 60},
		{info, 0, 0, 60},
	} {
		t.Run(strings.ReplaceAll(c.name, "/", ".")+fmt.Sprint(c.from), func(t *testing.T) {
			data := base[c.name]
			from, to := c.from, c.to
			if from < 0 {
				from = max(0, len(data)+from)
			}
			if to <= 0 || to > len(data) {
				to = len(data)
			}
			steps := c.steps
			if testing.Short() {
				steps /= 10
			}
			failed := 0
			for i := range steps {
				at := from + (to-from)*i/steps
				b := bytes.Clone(data)
				switch i % 5 {
				case 0:
					b[at] ^= 0xff
				case 1:
					b[at]++
				case 2:
					b[at] = 0
				case 3: // the varint 2^62
					copy(b[at:], "\x80\x80\x80\x80\x80\x80\x80\x80\x40")
				case 4:
					copy(b[at:], "\xff\xff\xff\xff\xff\xff\xff\x7f")
				}
				uri := base.with(c.name, b).mem(t)
				var err error
				bounded(t, 300<<20, func() {
					var ds robocache.Dataset
					if ds, err = robocache.Open(t.Context(), uri, robocache.OpenOptions{}); err ==
						nil {
						defer ds.Close()
						if err = readEpisodes(t.Context(), ds, 0); err == nil {
							_, _, err = digest(t.Context(), ds, cfg)
						}
					}
				})
				sound(t, err)
				if err != nil {
					failed++
				}
			}
			t.Logf("%d of %d ended with a typed error", failed, steps)
		})
	}
}
