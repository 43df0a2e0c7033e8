package convert_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// panics is a dataset with a camera whose parser panics at "gather", "frames" or "times". With
// "raw" an image has fewer bytes than its size requires, which is bad data.
type panics struct {
	*made
	at      string
	episode int
}

func newPanics(at string) *panics {
	m := newMade()
	m.lengths = []int{4, 5, 6, 3}
	m.info.FPS = robocache.Rate{Num: 20, Den: 1}
	m.info.Features = append(m.info.Features[:1:1], robocache.Feature{
		Key:      "cam",
		Kind:     robocache.KindImage,
		DType:    robocache.Uint8,
		Shape:    []int{64, 96, 3},
		Height:   64,
		Width:    96,
		Channels: 3,
	})
	return &panics{m, at, 2}
}

func (p *panics) hit(where string, episode int) {
	if p.at == where && episode == p.episode {
		var index []int
		_ = index[episode]
	}
}

func (p *panics) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	p.hit("gather", rows[0].Episode)
	return p.made.Gather(ctx, key, rows, dst)
}

func (p *panics) Times(ctx context.Context, e int, clock string) ([]int64, error) {
	p.hit("times", e)
	return p.made.Times(ctx, e, clock)
}

func (p *panics) Frames(
	_ context.Context,
	_ string,
	rows []robocache.Row,
	dst []robocache.FrameRef,
) error {
	for i, r := range rows {
		if r.Index > 0 {
			p.hit("frames", r.Episode)
		}
		pix := make([]byte, 64*96*3)
		for k := range pix {
			pix[k] = byte(k/3%96 + r.Index*3 + r.Episode)
		}
		if p.at == "raw" && r.Index > 0 && r.Episode == p.episode {
			pix = pix[:1000]
		}
		dst[i] = robocache.FrameRef{
			Raw: &robocache.Raw{
				Pix:      pix,
				Width:    96,
				Height:   64,
				Channels: 3,
				DType:    robocache.Uint8,
			},
		}
	}
	return nil
}

// C11: a panic in a parser or encoder, in any goroutine, is an internal error that names the
// episode. SkipBad skips only bad data. Resume keeps finished episodes; without Resume no files
// remain.
func TestPanic(t *testing.T) {
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	for _, images := range []string{"video", "images"} {
		opt := Options{
			Images:  images,
			Threads: 2,
			Resume:  true,
			Group:   1,
			Encode:  write.VideoConfig{Codec: "h264"},
		}
		if images == "video" {
			if err := video.CanEncode(t.Context(), video.EncodeConfig{
				Codec: video.H264,
				Width: 96, Height: 64, Rate: robocache.Rate{Num: 20, Den: 1},
			}); err != nil {
				t.Log(err)
				continue
			}
		}
		whole := filepath.Join(t.TempDir(), "whole")
		if _, err := ToLeRobot(t.Context(), newPanics(""), whole, opt); err != nil {
			t.Fatal(err)
		}
		want := tree(t, whole)
		places := []string{"gather", "frames", "raw", "times"}
		if images == "video" {
			places = places[1:3] // reached while they are encoded
		}
		for _, at := range places {
			t.Run(images+"/"+at, func(t *testing.T) {
				dst := filepath.Join(t.TempDir(), "out")
				_, err := ToLeRobot(t.Context(), newPanics(at), dst, opt)
				var e *robocache.Error
				bad := at == "raw"
				class := robocache.ErrInternal
				if bad {
					class = robocache.ErrMalformed
				}
				if !errors.Is(err, class) || robocache.Bad(err) != bad || !errors.As(err, &e) ||
					e.Where["episode"] != int64(20) && e.Where["source episode"] != int64(20) {
					t.Fatal(err)
				}
				if _, err := os.Stat(filepath.Join(dst, "meta", "info.json")); err == nil {
					t.Error("info.json is there")
				}
				if _, err := ToLeRobot(t.Context(), newPanics(""), dst, opt); err != nil {
					t.Fatal(err)
				}
				if got := tree(t, dst); !maps.Equal(got, want) {
					t.Errorf(
						"resumed, it is another dataset: %v, want %v",
						slices.Sorted(maps.Keys(got)),
						slices.Sorted(maps.Keys(want)),
					)
				}
				plain := opt
				plain.Resume = false
				dst = filepath.Join(t.TempDir(), "plain")
				for _, plain.SkipBad = range []bool{false, true} {
					rep, err := ToLeRobot(t.Context(), newPanics(at), dst, plain)
					if bad && plain.SkipBad {
						if err != nil || rep.NumEpisodes != 3 || rep.Episodes[2].New != -1 {
							t.Fatalf("%v %+v", err, rep)
						}
						continue
					}
					if !errors.Is(err, class) {
						t.Fatal(err)
					}
					if _, err := os.Stat(dst); !os.IsNotExist(err) {
						t.Errorf("something is left: %v", tree(t, dst))
					}
				}
			})
		}
	}
}

// C11: a panic while the source is aligned, or while its image statistics are computed, is an error
// too.
func TestPanicOnGrid(t *testing.T) {
	p := newPanics("times")
	for i := range p.info.Features {
		p.info.Features[i].Clock = p.info.Features[i].Key
	}
	for _, episodes := range [][]int{nil, {2}} {
		_, err := ToLeRobot(t.Context(), p, filepath.Join(t.TempDir(), "out"), Options{
			Align:    &align.Config{HZ: robocache.Rate{Num: 10, Den: 1}},
			Episodes: episodes,
			Frames:   stats.NoFrames,
		})
		if !errors.Is(err, robocache.ErrInternal) || !strings.Contains(err.Error(), "episode 2") {
			t.Errorf("%v: %v", episodes, err)
		}
	}
}
