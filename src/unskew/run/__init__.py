"""The main job: from a log to a result, a folder and a report; and scores from that folder."""
