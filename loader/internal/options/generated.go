package options

// EpisodeID is a key that is available for any dataset: the index of the sample's episode, as text.
const EpisodeID = "episode_id"

// GeneratedKeys are keys that any dataset has where they are asked for, of the names of LeRobot's columns: the number of the row among those of all episodes (with hz
// or an anchor: of the sample, as Locate takes it), the recording's number of its episode, and the number of the row in it.
var GeneratedKeys = []string{"index", "episode_index", "frame_index"}
