package mcap_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// decodeArriving returns the MD5 of the planes that a PacketDecoder gives for each message of the
// topics of packets in a file, by the key of the stream. It is "" for messages without an image.
func decodeArriving(t *testing.T, path string) map[string][]string {
	t.Helper()
	ctx := context.Background()
	dir, err := store.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(dir)
	file, err := dir.Open(ctx, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	s, err := mcap.OpenStorage(ctx, file, path, mcap.StorageOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := map[string][]string{}
	for k, info := range s.Topics() {
		schema, err := ros2.ParseSchema(info.SchemaEncoding, info.Type, info.SchemaText)
		if err != nil {
			t.Fatal(err)
		}
		var topic *ros2.Topic
		var d *video.PacketDecoder
		var sums []string
		spec := video.Spec{Pixel: video.YUVPlanes}
		emit := func(number int, pic video.Frame) error {
			b, err := video.ConvertTo(nil, pic, &spec)
			h := md5.Sum(b)
			sums[number] = hex.EncodeToString(h[:])
			return err
		}
		err = s.Messages(ctx, k, 0, int(info.Messages), func(i int, m *bag.Message) error {
			if topic == nil {
				if topic, err = ros2.NewTopic(info.Name, schema, [][]byte{m.Data}); err != nil {
					return err
				}
				if topic.Codec() == "" {
					return nil
				}
				if d, err = video.NewPacketDecoder(topic.Codec(), video.Limits{}); err != nil {
					return err
				}
			}
			if d == nil {
				return nil
			}
			packet, _, err := topic.Packet(m.Data)
			if err != nil {
				return err
			}
			sums = append(sums, "")
			return d.Decode(packet, emit)
		})
		if err != nil {
			t.Fatal(info.Name, err)
		}
		if d != nil {
			if err := d.Flush(emit); err != nil {
				t.Error(info.Name, err)
			}
			d.Close()
			out[topic.Key()] = sums
		}
	}
	return out
}

// video.V16, bag.B8: a PacketDecoder gives the image of each message that the dataset gives for its
// row.
func TestPacketsAsTheyArrive(t *testing.T) {
	check := func(path string, streams int) {
		t.Helper()
		ds, err := mcap.Open(context.Background(), path, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		arriving := decodeArriving(t, path)
		if len(arriving) != streams {
			t.Errorf("%d topics of packets", len(arriving))
		}
		for key, got := range arriving {
			want := decoded(t, ds, key, upTo(len(got)))
			images := 0
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s, message %d: %q, in the dataset %q", key, i, got[i], want[i])
				}
				if got[i] != "" {
					images++
				}
			}
			if t.Logf("%s: %d images of %d messages", key, images, len(got)); images < len(got)/2 {
				t.Errorf("%s: %d images of %d messages", key, images, len(got))
			}
		}
	}
	t.Run("synthetic", func(t *testing.T) {
		path, _ := filmed(t, x264, x265)
		check(path, 6)
	})
	t.Run("real", func(t *testing.T) {
		if _, err := video.ActiveBackend(); err != nil {
			t.Skip("no decoder in this build:", err)
		}
		ctx := context.Background()
		src, err := lerobot.Open(ctx, realdata.Path(t, "g1_v30_exact"), robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		path := filepath.Join(t.TempDir(), "real.mcap")
		options := convert.Options{WriteOptions: robocache.WriteOptions{Episodes: []int{0}}}
		if _, err := convert.Write(ctx, src, "mcap", path, options); err != nil {
			t.Fatal(err)
		}
		if f, err := os.Stat(path); err != nil {
			t.Fatal(err)
		} else if f.IsDir() {
			files, _ := filepath.Glob(filepath.Join(path, "*.mcap"))
			path = files[0]
		}
		check(path, 1)
	})
}
