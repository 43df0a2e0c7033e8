package loader

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

func stillSize(encoded []byte) (width, height, channels int, err error) {
	return 0, 0, 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "still", Msg: "still pictures"}
}

func decodeStill(encoded []byte, spec *video.Spec, dst []byte) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "still", Msg: "still pictures"}
}
