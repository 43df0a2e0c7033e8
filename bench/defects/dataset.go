package defects

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// set is a dataset of episodes in memory. Images are drawn when they are read.
type set struct {
	episodes []*episode
	info     robocache.Info
	offered  robocache.Capabilities
}

func cameraKey(c int) string {
	return []string{"observation.images.front", "observation.images.wrist"}[c]
}

// newSet returns the dataset of episodes.
func newSet(episodes []*episode) *set {
	s := &set{episodes: episodes}
	fps, _ := robocache.RateOf("20")
	s.info = robocache.Info{
		URI: "memory:defects", Format: "defects", Version: "1", Robot: "six_joints", FPS: fps,
		Episodes: len(episodes),
	}
	names, _ := json.Marshal([]string{"j0", "j1", "j2", "j3", "j4", "j5", "gripper"})
	for _, key := range []string{"observation.state", "action"} {
		s.info.Features = append(s.info.Features, robocache.Feature{
			Key: key, Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{dims},
			Names: names, FPS: fps,
		})
	}
	for c := range cameras {
		s.info.Features = append(s.info.Features, robocache.Feature{
			Key: cameraKey(c), Kind: robocache.KindImage, DType: robocache.Uint8,
			Shape: []int{side, side, 3}, Names: json.RawMessage(`["height","width","channels"]`),
			Height: side, Width: side, Channels: 3, FPS: fps,
		})
	}
	for i, t := range tasks {
		s.info.Tasks = append(s.info.Tasks, robocache.Task{Index: int64(i), Text: t.text})
	}
	for _, e := range episodes {
		s.info.Frames += int64(e.rows())
	}
	return s
}

func (s *set) Info() *robocache.Info                          { return &s.info }
func (s *set) Len(e int) int                                  { return s.episodes[e].rows() }
func (s *set) Capabilities() *robocache.Capabilities          { return &s.offered }
func (s *set) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (s *set) Close() error                                   { return nil }

func (s *set) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e,
		Index:    int64(e),
		Length:   s.Len(e),
		Tasks:    []string{tasks[s.episodes[e].task].text},
	}, nil
}

func (s *set) Times(_ context.Context, e int, _ string) ([]int64, error) {
	return append([]int64(nil), s.episodes[e].times...), nil
}

func (s *set) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	for k, r := range rows {
		e := s.episodes[r.Episode]
		p := e.state[r.Index]
		if key == "action" {
			p = e.action[r.Index]
		}
		for j, v := range p {
			binary.LittleEndian.PutUint32(dst[(k*dims+j)*4:], math.Float32bits(float32(v)))
		}
	}
	return nil
}

func (s *set) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	if key != "task" {
		return nil, robocache.NotFound("read", robocache.Where{"stream": key}, "no such stream")
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = tasks[s.episodes[r.Episode].task].text
	}
	return out, nil
}

func (s *set) Frames(
	_ context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) error {
	for c := range cameras {
		if cameraKey(c) != key {
			continue
		}
		for i, r := range rows {
			pix := make([]byte, side*side*3)
			s.episodes[r.Episode].render(c, r.Index, pix)
			out[i] = robocache.FrameRef{Raw: &robocache.Raw{
				Pix: pix, Height: side, Width: side, Channels: 3, DType: robocache.Uint8,
			}}
		}
		return nil
	}
	return fmt.Errorf("no camera %s", key)
}
