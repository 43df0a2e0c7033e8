package stats

import "github.com/goatnote-inc/robocache/video"

func Still(encoded []byte, spec *video.Spec, buf []byte) ([]byte, error) { return nil, nil }
func (p *Pixels) AddStill(encoded []byte) error                          { return nil }
