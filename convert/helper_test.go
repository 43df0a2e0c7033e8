package convert_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/stats"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func data(t testing.TB, name string) string { return realdata.Path(t, name) }

// exhaustive enables the long versions of tests.
func exhaustive() bool { return os.Getenv("ROBOCACHE_EXHAUSTIVE") == "1" }

func open(t testing.TB, path string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// tree returns the SHA-256 of every file below a folder, by path.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s := sha256.Sum256(b)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = hex.EncodeToString(s[:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Options combines the options of a conversion and of LeRobot's writer.
type Options struct {
	Episodes                      []int
	Keys                          []string
	VideoCodec                    string
	Encode                        write.VideoConfig
	Images                        string
	Align                         *align.Config
	DropInvalid                   bool
	CopyOnly                      bool
	FPS                           robocache.Rate
	DryRun, Resume, SkipBad       bool
	Frames                        stats.FramePolicy
	Threads                       int
	DataFileBytes, VideoFileBytes int64
	TempDir                       string
	ChunksSize, Group             int
	Progress                      func(Progress)
}

type Progress struct{ Episodes int }

type Report = write.Report

const (
	RecordedTimestamps = write.RecordedTimestamps
	journalName        = ".robocache-conversion.json"
	reportName         = "meta/conversion.json"
	partsName          = ".robocache-encoded"
)

// options returns the options of package convert; own holds those of LeRobot's writer.
func (o Options) options(own bool, more map[string]string) convert.Options {
	out := convert.Options{
		Align:       o.Align,
		DropInvalid: o.DropInvalid,
		WriteOptions: robocache.WriteOptions{
			Episodes: o.Episodes,
			Keys:     o.Keys,
			Threads:  o.Threads,
			SkipBad:  o.SkipBad,
			FPS:      o.FPS,
			DryRun:   o.DryRun,
			Resume:   o.Resume,
			Options:  map[string]string{},
		},
	}
	if o.Progress != nil {
		out.Progress = func(p robocache.Progress) { o.Progress(Progress{p.Episodes}) }
	}
	set := func(k, v string) {
		if own && v != "" && v != "0" && v != "false" {
			out.Options[k] = v
		}
	}
	set("video_codec", o.VideoCodec)
	set("codec", o.Encode.Codec)
	set("gop", strconv.Itoa(o.Encode.GOP))
	set("crf", strconv.Itoa(o.Encode.CRF))
	set("preset", o.Encode.Preset)
	set("images", o.Images)
	set("copy_only", strconv.FormatBool(o.CopyOnly))
	set("frames", string(o.Frames))
	set("data_file_bytes", strconv.FormatInt(o.DataFileBytes, 10))
	set("video_file_bytes", strconv.FormatInt(o.VideoFileBytes, 10))
	set("temp_dir", o.TempDir)
	set("chunks_size", strconv.Itoa(o.ChunksSize))
	set("group_rows", strconv.Itoa(o.Group))
	maps.Copy(out.Options, more)
	return out
}

func ToLeRobot(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt Options,
) (*Report, error) {
	r, err := convert.Write(ctx, src, "lerobot", dst, opt.options(true, nil))
	if err != nil {
		return nil, err
	}
	return r.Own.(*Report), nil
}

func Write(
	ctx context.Context,
	src robocache.Dataset,
	format, dst string,
	opt Options,
	options map[string]string,
) (*robocache.WriteReport, error) {
	return convert.Write(ctx, src, format, dst, opt.options(format == "lerobot", options))
}

func rowsOf(episode, n int) []robocache.Row {
	rows := make([]robocache.Row, n)
	for k := range rows {
		rows[k] = robocache.Row{Episode: episode, Index: k}
	}
	return rows
}
