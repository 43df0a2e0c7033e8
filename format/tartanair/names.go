package tartanair

import (
	"path"
	"regexp"
	"strconv"
)

// kind is the content of a stream.
type kind uint8

const (
	imageKind kind = iota
	depthKind
	labelKind
	poseKind
	inertialKind
)

// prefixes are the keys of streams without the name of the camera or the array.
var prefixes = [...]string{
	imageKind:    "observation.images.",
	depthKind:    "observation.depth.",
	labelKind:    "observation.seg.",
	poseKind:     "observation.pose.",
	inertialKind: "observation.imu.",
}

// member is a file of a trajectory.
type member struct {
	trajectory string // its folder
	kind       kind
	name       string // of the camera, or of the array
	number     int64  // of a frame
}

func (m *member) key() string { return prefixes[m.kind] + m.name }

var (
	folderName = regexp.MustCompile(`^(image|depth|seg)_(left|right|[lr]cam_[a-z]+)$`)
	poseName   = regexp.MustCompile(`^pose_(left|right|[lr]cam_[a-z]+)\.txt$`)
	frameName  = regexp.MustCompile(`^([0-9]{1,12})_[a-z0-9_]+\.(png|jpg|npy)$`)
	arrayName  = regexp.MustCompile(`^([a-z0-9_]+)\.npy$`)
)

var folderKinds = map[string]kind{"image": imageKind, "depth": depthKind, "seg": labelKind}

// parseName returns the member of a trajectory that a file is, or false.
func parseName(file string) (m member, ok bool) {
	dir, base := path.Dir(file), path.Base(file)
	if p := poseName.FindStringSubmatch(base); p != nil {
		return member{trajectory: dir, kind: poseKind, name: p[1]}, true
	}
	folder := path.Base(dir)
	m.trajectory = path.Dir(dir)
	if folder == "imu" {
		if p := arrayName.FindStringSubmatch(base); p != nil {
			m.kind, m.name = inertialKind, p[1]
			return m, true
		}
		return m, false
	}
	f, p := folderName.FindStringSubmatch(folder), frameName.FindStringSubmatch(base)
	if f == nil || p == nil {
		return m, false
	}
	m.kind, m.name = folderKinds[f[1]], f[2]
	isArray := p[2] == "npy"
	if isArray && m.kind == imageKind || p[2] == "jpg" && m.kind != imageKind {
		return m, false
	}
	n, err := strconv.ParseInt(p[1], 10, 64)
	m.number = n
	return m, err == nil
}
